package main

import (
	"log"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"tf-serving-simulator/internal/wire"
)

// loader turns a version directory into a servable, as often as it is asked to.
type loader struct {
	settings  sessionSettings
	scheduler *batchScheduler // nil: nothing is batched
	gpu       *device
	stats     *metrics
	delay     time.Duration
}

// servable is one loaded version.
type servable struct {
	name    string
	version int64
	gpu     *device
	stats   *metrics
	batches *batchSession // nil: each request runs alone
	inUse   sync.WaitGroup
}

func (s *servable) run(signature string, x tensor, deadline time.Time) (tensor, error) {
	if s.batches != nil {
		return s.batches.run(signature, x, deadline, s.stats)
	}
	size := int64(1)
	if len(x.shape) > 0 {
		size = x.shape[0]
	}
	if err := s.gpu.execute(size, deadline); err != nil {
		return tensor{}, err
	}
	return halfPlusTwo(x), nil
}

// Files in a version directory that make a load slow or fail, for tests.
const (
	loadSecondsFile = "simulator_load_seconds"
	loadErrorFile   = "simulator_load_error"
)

// load is one attempt.
func (l *loader) load(name string, version int64, dir string) (*servable, error) {
	start := time.Now()
	s, err := l.tryLoad(name, version, dir)
	if err != nil {
		l.stats.add(loadAttempts, 1, dir, "fail")
		return nil, err
	}
	l.stats.add(loadAttempts, 1, dir, "success")
	took := float64(time.Since(start).Microseconds())
	l.stats.add(loadLatency, took, dir)
	l.stats.observe(loadLatencyStage, took, dir, "restore_graph")
	if l.settings.warmup {
		if err := l.warmUp(s, dir); err != nil {
			s.close()
			return nil, err
		}
	}
	return s, nil
}

func (l *loader) tryLoad(name string, version int64, dir string) (*servable, error) {
	time.Sleep(l.loadTime(dir))
	if !hasContent(filepath.Join(dir, "saved_model.pb")) && !hasContent(filepath.Join(dir, "saved_model.pbtxt")) {
		return nil, status.Errorf(codes.NotFound, "Could not find SavedModel .pb or .pbtxt at supplied export directory"+
			" path: %s. Check that the directory exists and that you have the right permissions for accessing it.", dir)
	}
	if message, err := os.ReadFile(filepath.Join(dir, loadErrorFile)); err == nil {
		return nil, status.Error(codes.Internal, strings.TrimSpace(string(message)))
	}
	for _, tag := range l.settings.tags {
		if tag != "serve" { // the only tag that the sample models carry
			return nil, status.Errorf(codes.NotFound, "Could not find meta graph def matching supplied tags: { %s }."+
				" To inspect available tag-sets in the SavedModel, please use the SavedModel CLI: `saved_model_cli`",
				strings.Join(l.settings.tags, " "))
		}
	}
	s := &servable{name: name, version: version, gpu: l.gpu, stats: l.stats}
	parameters, err := l.batchingOf(dir)
	if err != nil || parameters == nil {
		return s, err
	}
	s.batches, err = newBatchSession(l.scheduler, newQueueOptions(parameters), l.gpu, l.stats)
	return s, err
}

// batchingOf gives the parameters that count for a version; nil where it is not batched.
func (l *loader) batchingOf(dir string) (*wire.BatchingParameters, error) {
	if l.scheduler == nil || !l.settings.perModel {
		return l.settings.batching, nil
	}
	file := filepath.Join(dir, "batching_params.pbtxt")
	if _, err := os.Stat(file); err != nil {
		log.Printf("I %s has no batching_params.pbtxt: its requests are not batched", dir)
		return nil, nil
	}
	own := &wire.BatchingParameters{}
	return own, readTextProto(file, own)
}

func (l *loader) loadTime(dir string) time.Duration {
	text, err := os.ReadFile(filepath.Join(dir, loadSecondsFile))
	if err != nil {
		return l.delay
	}
	delay, err := parseDuration(string(text), time.Second)
	if err != nil {
		log.Printf("W %s/%s: %q is not a number of seconds", dir, loadSecondsFile, text)
		return l.delay
	}
	return delay
}

func (s *servable) close() {
	s.inUse.Wait() // a version goes when the last request that holds it is done
	if s.batches != nil {
		s.batches.close()
	}
}

func hasContent(file string) bool {
	info, err := os.Stat(file)
	return err == nil && info.Mode().IsRegular() && info.Size() > 0
}
