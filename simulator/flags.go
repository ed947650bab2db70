package main

import (
	"fmt"
	"strconv"
	"strings"
)

// options holds the value of every flag of tensorflow_model_server.
type options struct {
	port, restPort, restThreads, restTimeoutMs                int32
	grpcSocketPath, grpcChannelArguments                      string
	grpcMaxThreads                                            int32
	cors                                                      bool
	enableBatching, perModelBatching                          bool
	batchingFile                                              string
	labelsForUnavailable                                      bool
	modelConfigFile                                           string
	modelConfigPollSeconds                                    int32
	modelName, modelBasePath                                  string
	loadThreads, unloadThreads, maxLoadRetries                int32
	loadRetryMicros                                           int64
	pollSeconds                                               int32
	flushCaches                                               bool
	sessionParallelism, intraParallelism, interParallelism    int64
	sessionConfigFile, platformConfigFile                     string
	memoryFraction                                            float32
	savedModelTags                                            string
	alts                                                      bool
	sslConfigFile                                             string
	enableWarmup                                              bool
	warmupIterations                                          int32
	showVersion                                               bool
	monitoringFile                                            string
	removeUnusedFields, preferTflite                          bool
	tflitePools, tfliteInterpreters                           int32
	methodNameCheck, xlaCPU, xlaGPU, enableProfiler           bool
	threadPoolFactoryFile, mixedPrecision                     string
	skipInitializeTPU, enableHealth, serializeAsTensorContent bool

	given map[string]bool // the flags that stood on the command line
}

// flag ties a name to the option it sets; the type of `to` is the type of the flag.
type flag struct {
	name  string
	since int // the minor version of 2.x that brought it
	to    any
}

func (o *options) table() []flag {
	return []flag{
		{"port", 10, &o.port},
		{"grpc_socket_path", 10, &o.grpcSocketPath},
		{"rest_api_port", 10, &o.restPort},
		{"rest_api_num_threads", 10, &o.restThreads},
		{"rest_api_timeout_in_ms", 10, &o.restTimeoutMs},
		{"rest_api_enable_cors_support", 10, &o.cors},
		{"enable_batching", 10, &o.enableBatching},
		{"allow_version_labels_for_unavailable_models", 10, &o.labelsForUnavailable},
		{"batching_parameters_file", 10, &o.batchingFile},
		{"model_config_file", 10, &o.modelConfigFile},
		{"model_config_file_poll_wait_seconds", 10, &o.modelConfigPollSeconds},
		{"model_name", 10, &o.modelName},
		{"model_base_path", 10, &o.modelBasePath},
		{"num_load_threads", 10, &o.loadThreads},
		{"num_unload_threads", 10, &o.unloadThreads},
		{"max_num_load_retries", 10, &o.maxLoadRetries},
		{"load_retry_interval_micros", 10, &o.loadRetryMicros},
		{"file_system_poll_wait_seconds", 10, &o.pollSeconds},
		{"flush_filesystem_caches", 10, &o.flushCaches},
		{"tensorflow_session_parallelism", 10, &o.sessionParallelism},
		{"tensorflow_intra_op_parallelism", 10, &o.intraParallelism},
		{"tensorflow_inter_op_parallelism", 10, &o.interParallelism},
		{"tensorflow_session_config_file", 10, &o.sessionConfigFile},
		{"platform_config_file", 10, &o.platformConfigFile},
		{"per_process_gpu_memory_fraction", 10, &o.memoryFraction},
		{"saved_model_tags", 10, &o.savedModelTags},
		{"use_alts_credentials", 10, &o.alts},
		{"ssl_config_file", 10, &o.sslConfigFile},
		{"grpc_channel_arguments", 10, &o.grpcChannelArguments},
		{"grpc_max_threads", 10, &o.grpcMaxThreads},
		{"enable_model_warmup", 10, &o.enableWarmup},
		{"num_request_iterations_for_warmup", 10, &o.warmupIterations},
		{"version", 10, &o.showVersion},
		{"monitoring_config_file", 10, &o.monitoringFile},
		{"remove_unused_fields_from_bundle_metagraph", 10, &o.removeUnusedFields},
		{"prefer_tflite_model", 10, &o.preferTflite},
		{"num_tflite_pools", 10, &o.tflitePools},
		{"num_tflite_interpreters_per_pool", 10, &o.tfliteInterpreters},
		{"enable_signature_method_name_check", 10, &o.methodNameCheck},
		{"xla_cpu_compilation_enabled", 10, &o.xlaCPU},
		{"enable_profiler", 10, &o.enableProfiler},
		{"thread_pool_factory_config_file", 10, &o.threadPoolFactoryFile},
		{"enable_per_model_batching_parameters", 11, &o.perModelBatching},
		{"mixed_precision", 15, &o.mixedPrecision},
		{"skip_initialize_tpu", 15, &o.skipInitializeTPU},
		{"enable_grpc_healthcheck_service", 15, &o.enableHealth},
		{"xla_gpu_compilation_enabled", 18, &o.xlaGPU},
		{"enable_serialization_as_tensor_content", 19, &o.serializeAsTensorContent},
	}
}

// defaultOptions takes the number of CPUs that the process may be scheduled on, from which several defaults follow.
func defaultOptions(cpus int) *options {
	return &options{
		port:               8500,
		restThreads:        int32(4 * cpus),
		restTimeoutMs:      30000,
		grpcMaxThreads:     int32(4 * cpus),
		modelName:          "default",
		maxLoadRetries:     5,
		loadRetryMicros:    60_000_000,
		pollSeconds:        1,
		flushCaches:        true,
		savedModelTags:     "serve",
		enableWarmup:       true,
		removeUnusedFields: true,
		tflitePools:        int32(cpus),
		tfliteInterpreters: 1,
		enableProfiler:     true,
		given:              map[string]bool{},
	}
}

// parseFlags reads the command line as the simulated version would; a later flag wins over an earlier one.
func parseFlags(args []string, version serverVersion, cpus int) (*options, error) {
	o := defaultOptions(cpus)
	flags := map[string]flag{}
	for _, f := range o.table() {
		flags[f.name] = f
	}
	for _, arg := range args {
		name, value, hasValue := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
		f, known := flags[name]
		switch {
		case !strings.HasPrefix(arg, "--"):
			return nil, ignored("%q: write every flag as one word, --name=value", arg)
		case !known:
			return nil, ignored("%q: not a flag of tensorflow_model_server %s", arg, version)
		case f.since > version.minor:
			return nil, ignored("%q: this flag exists from 2.%d on, and %s is simulated", arg, f.since, version)
		}
		if b, isBool := f.to.(*bool); isBool && !hasValue {
			*b = true
		} else if !hasValue {
			return nil, ignored("%q: its value must follow after an equals sign, --%s=value", arg, name)
		} else if err := f.set(value); err != nil {
			return nil, refused("%q: %s", arg, err)
		}
		o.given[name] = true
	}
	return o, nil
}

func (f flag) set(value string) error {
	switch to := f.to.(type) {
	case *string:
		*to = value
	case *bool:
		switch strings.ToLower(value) {
		case "true", "1":
			*to = true
		case "false", "0":
			*to = false
		default:
			return fmt.Errorf("want true, false, 1 or 0")
		}
	case *int32:
		number, err := strconv.ParseInt(value, 10, 32)
		if err != nil {
			return fmt.Errorf("want a whole number of 32 bits")
		}
		*to = int32(number)
	case *int64:
		number, err := strconv.ParseInt(value, 10, 64)
		if err != nil {
			return fmt.Errorf("want a whole number of 64 bits")
		}
		*to = number
	case *float32:
		number, err := strconv.ParseFloat(value, 32)
		if err != nil {
			return fmt.Errorf("want a number")
		}
		*to = float32(number)
	default:
		panic("flag " + f.name + " has an unknown type")
	}
	return nil
}
