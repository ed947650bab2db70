// Command tensorflow_model_server is a strict stand-in for TensorFlow Serving: it behaves as the real server does
// towards its clients and its files, computes half_plus_two whatever the model, and refuses to start where the real
// server would silently ignore what it was told. It is for tests and for the local stack.
package main

import (
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"time"

	"tf-serving-simulator/internal/wire"
)

func main() {
	log.SetFlags(log.Ldate | log.Lmicroseconds)
	muteSignalsAsFirstProcess()
	if err := run(os.Args[1:]); err != nil {
		var stop *refusal
		if errors.As(err, &stop) {
			fmt.Fprintf(os.Stderr, "tensorflow_model_server: %s\n", stop.message)
			os.Exit(stop.code)
		}
		log.Printf("E Failed to start server. Error: %s", describe(err))
		os.Exit(exitRefused)
	}
	select {} // until killed
}

// muteSignalsAsFirstProcess gives the process the fate of one that installs no signal handlers, which Go's runtime
// does: as PID 1 the kernel spares it SIGTERM and its like; elsewhere they end it at once, requests in flight or not.
func muteSignalsAsFirstProcess() {
	if os.Getpid() == 1 {
		signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT)
	}
}

func run(args []string) error {
	version, err := parseVersion(simulatedVersion())
	if err != nil {
		return refused("%s", err)
	}
	cpus := runtime.NumCPU() // those that the process may be scheduled on, whatever its quota
	o, err := parseFlags(args, version, cpus)
	if err != nil {
		return err
	}
	if o.showVersion {
		fmt.Printf("TensorFlow ModelServer: %s-simulator\nTensorFlow Library: %s\n", version, version)
		os.Exit(0)
	}
	k, err := readKnobs(os.Environ())
	if err != nil {
		return err
	}
	gpu, err := givenGPU(os.Getenv, k.anyGPU)
	if err != nil {
		return err
	}
	log.Printf("I Simulating tensorflow_model_server %s on GPU %q with %d CPUs: %s", version, gpu, cpus, strings.Join(args, " "))
	return start(o, k, newDevice(gpu, k), cpus)
}

func simulatedVersion() string {
	if version := os.Getenv("TF_SERVING_SIMULATED_VERSION"); version != "" {
		return version
	}
	return "2.14.1"
}

// start loads the models and then opens the ports: gRPC first, REST after it.
func start(o *options, k knobs, gpu *device, cpus int) error {
	if err := checkOptions(o); err != nil {
		return err
	}
	config, err := readModelServerConfig(o)
	if err != nil {
		return err
	}
	settings, err := readSessionSettings(o)
	if err != nil {
		return err
	}
	stats := newMetrics()
	l := &loader{settings: settings, gpu: gpu, stats: stats, delay: k.load}
	if settings.batching != nil {
		if l.scheduler, err = newBatchScheduler(settings.batching, cpus); err != nil {
			return err
		}
	}
	c := newCore(o, l, cpus)
	if err := c.reload(config); err != nil {
		return err
	}
	if o.modelConfigFile != "" && o.modelConfigPollSeconds > 0 {
		go c.pollConfigFile(o.modelConfigFile, time.Duration(o.modelConfigPollSeconds)*time.Second)
	}
	i := &inference{core: c, stats: stats, options: o}
	server, err := newGRPCServer(o, i)
	if err != nil {
		return err
	}
	if err := serveGRPC(server, o, k.bindAddress); err != nil {
		return err
	}
	openREST(o, k, i)
	return nil
}

// openREST leaves gRPC alone whatever goes wrong: the real server keeps running without REST too.
func openREST(o *options, k knobs, i *inference) {
	if o.restPort == 0 {
		return
	}
	if o.restPort == o.port {
		log.Printf("E server_options.http_port cannot be same as grpc_port. Skipped exporting HTTP/REST API.")
		return
	}
	monitoring := &wire.MonitoringConfig{}
	if o.monitoringFile != "" {
		if err := readTextProto(o.monitoringFile, monitoring); err != nil {
			log.Printf("E Failed to start server. Error: %s (gRPC goes on, REST never opens)", describe(err))
			return
		}
	}
	serveREST(newRestServer(o, i, monitoring), o.restPort, k.bindAddress)
}
