package main

import (
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"tf-serving-simulator/internal/wire"
)

func parameters(maxBatch, timeoutMicros, maxEnqueued, threads int64, allowed ...int64) *wire.BatchingParameters {
	return &wire.BatchingParameters{
		MaxBatchSize: wrapperspb.Int64(maxBatch), BatchTimeoutMicros: wrapperspb.Int64(timeoutMicros),
		MaxEnqueuedBatches: wrapperspb.Int64(maxEnqueued), NumBatchThreads: wrapperspb.Int64(threads), AllowedBatchSizes: allowed,
	}
}

// harness is a queue whose batches wait until they are released, so that a test decides what is in flight.
type harness struct {
	queue   *batchQueue
	started chan *batch
	release chan struct{}
}

func newHarness(t *testing.T, p *wire.BatchingParameters) *harness {
	t.Helper()
	scheduler, err := newBatchScheduler(p, 1)
	if err != nil {
		t.Fatal(err)
	}
	options := newQueueOptions(p)
	if err := options.check(); err != nil {
		t.Fatal(err)
	}
	h := &harness{started: make(chan *batch, 100), release: make(chan struct{})}
	h.queue = scheduler.addQueue(options, func(b *batch) {
		h.started <- b
		<-h.release
		for _, one := range b.tasks {
			one.result <- outcome{y: halfPlusTwo(one.x)}
		}
	})
	t.Cleanup(func() { close(h.release) })
	return h
}

func (h *harness) ask(size int64) <-chan error {
	done := make(chan error, 1)
	go func() {
		_, err := h.queue.schedule(tensor{shape: []int64{size}, values: make([]float32, size)}, time.Time{})
		done <- err
	}()
	return done
}

// settled gives the end of a request, and fails the test where a request that should be refused, or done, still waits.
func settled(t *testing.T, done <-chan error) error {
	t.Helper()
	select {
	case err := <-done:
		return err
	case <-time.After(5 * time.Second):
		t.Fatal("no answer")
		return nil
	}
}

func (h *harness) waitQueued(t *testing.T, examples int64) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		h.queue.scheduler.mu.Lock()
		waiting := int64(0)
		for _, b := range h.queue.batches {
			waiting += b.size
		}
		h.queue.scheduler.mu.Unlock()
		if waiting == examples {
			return
		}
	}
	t.Fatalf("%d examples were never queued at once", examples)
}

func TestRequestsThatWaitForAThreadShareABatch(t *testing.T) {
	h := newHarness(t, parameters(8, 0, 10, 1))
	h.ask(1)
	if first := <-h.started; first.size != 1 {
		t.Fatalf("with a free thread and no timeout a request runs alone, got %d", first.size)
	}
	for range 5 {
		h.ask(1)
	}
	h.waitQueued(t, 5)
	h.release <- struct{}{}
	if second := <-h.started; second.size != 5 {
		t.Errorf("batch of %d, want the 5 that waited", second.size)
	}
}

func TestAFullBatchDoesNotWaitForItsTimeout(t *testing.T) {
	h := newHarness(t, parameters(4, int64(time.Hour/time.Microsecond), 10, 1))
	for range 4 {
		h.ask(1)
	}
	select {
	case b := <-h.started:
		if b.size != 4 {
			t.Errorf("batch of %d, want 4", b.size)
		}
	case <-time.After(5 * time.Second):
		t.Fatal("the full batch never ran")
	}
}

func TestAPartialBatchRunsWhenItsTimeoutIsOver(t *testing.T) {
	const wait = 50 * time.Millisecond
	h := newHarness(t, parameters(4, wait.Microseconds(), 10, 1))
	asked := time.Now()
	h.ask(1)
	<-h.started
	if waited := time.Since(asked); waited < wait {
		t.Errorf("ran after %s, want %s at least", waited, wait)
	}
}

func TestABatchIsNeverLargerThanTheMaximum(t *testing.T) {
	h := newHarness(t, parameters(4, 0, 10, 1))
	h.ask(1)
	<-h.started
	h.ask(3)
	h.waitQueued(t, 3)
	h.ask(2)
	h.waitQueued(t, 5)
	h.release <- struct{}{}
	if b := <-h.started; b.size != 3 {
		t.Errorf("batch of %d, want 3: the next task does not fit", b.size)
	}
}

func TestARequestLargerThanTheMaximumIsRefused(t *testing.T) {
	h := newHarness(t, parameters(4, 0, 10, 1))
	err := settled(t, h.ask(5))
	if status.Code(err) != codes.InvalidArgument ||
		!strings.Contains(err.Error(), "Task size 5 is larger than maximum input batch size 4") {
		t.Errorf("got %v", err)
	}
}

func TestAFullQueueRefusesWhatNeedsANewBatch(t *testing.T) {
	h := newHarness(t, parameters(2, 0, 2, 1))
	h.ask(2)
	<-h.started // runs: does not count
	h.ask(2)
	h.waitQueued(t, 2)
	h.ask(1)
	h.waitQueued(t, 3) // two batches wait, the second one has room for one
	if err := settled(t, h.ask(2)); status.Code(err) != codes.Unavailable {
		t.Errorf("a task that needs a third batch: got %v, want UNAVAILABLE", err)
	}
	h.ask(1)
	h.waitQueued(t, 4)
	if err := settled(t, h.ask(1)); status.Code(err) != codes.Unavailable {
		t.Errorf("a task for a full queue: got %v, want UNAVAILABLE", err)
	}
}

func TestSplittingFillsTheOpenBatchFirst(t *testing.T) {
	p := parameters(100, 0, 10, 1)
	p.EnableLargeBatchSplitting = wrapperspb.Bool(true)
	p.MaxExecutionBatchSize = wrapperspb.Int64(4)
	h := newHarness(t, p)
	h.ask(4)
	<-h.started
	h.ask(1)
	h.waitQueued(t, 1)
	done := h.ask(9)
	h.waitQueued(t, 10)
	for _, want := range []int64{4, 4, 2} {
		h.release <- struct{}{}
		if b := <-h.started; b.size != want {
			t.Errorf("batch of %d, want %d", b.size, want)
		}
	}
	h.release <- struct{}{}
	if err := settled(t, done); err != nil {
		t.Error(err)
	}
}

func TestQueuesOfAllModelsShareTheThreads(t *testing.T) {
	h := newHarness(t, parameters(4, 0, 10, 2))
	other := h.queue.scheduler.addQueue(h.queue.queueOptions, h.queue.process)
	h.ask(1)
	<-h.started
	go func() { _, _ = other.schedule(tensor{shape: []int64{1}, values: []float32{1}}, time.Time{}) }()
	<-h.started
	h.ask(1)
	h.waitQueued(t, 1)
	select {
	case <-h.started:
		t.Error("a third batch ran on two threads")
	case <-time.After(50 * time.Millisecond):
	}
}

func TestParametersAreCheckedWhenAVersionLoads(t *testing.T) {
	splitting := parameters(8, 0, 10, 1)
	splitting.EnableLargeBatchSplitting = wrapperspb.Bool(true)
	tooLong := parameters(8, 0, 10, 1)
	tooLong.EnableLargeBatchSplitting = wrapperspb.Bool(true)
	tooLong.MaxExecutionBatchSize = wrapperspb.Int64(16)
	for name, test := range map[string]struct {
		p    *wire.BatchingParameters
		want string // part of the error; empty: accepted
	}{
		"last allowed size is not the maximum":      {parameters(64, 0, 10, 1, 1, 8, 32), "last entry was 32; expected 64"},
		"allowed sizes without a maximum":           {&wire.BatchingParameters{AllowedBatchSizes: []int64{8}}, "expected 1000"},
		"order of allowed sizes":                    {parameters(8, 0, 10, 1, 4, 2, 8), ""},
		"no batch at all":                           {parameters(0, 0, 10, 1), "must be positive"},
		"negative timeout":                          {parameters(8, -1, 10, 1), "batch_timeout_micros"},
		"no queue, no splitting":                    {parameters(8, 0, 0, 1), ""},
		"splitting without an execution size":       {splitting, "max_execution_batch_size"},
		"execution size above the size of requests": {tooLong, "was 8 and 16"},
	} {
		options := newQueueOptions(test.p)
		err := options.check()
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v, want %q", name, err, test.want)
		}
	}
}

func TestNoThreadsIsRefusedAtOnce(t *testing.T) {
	if _, err := newBatchScheduler(parameters(8, 0, 10, 0), 4); err == nil {
		t.Error("num_batch_threads: 0 was accepted")
	}
}

func TestRoundingUpTakesTheFirstSizeThatFits(t *testing.T) {
	options := newQueueOptions(parameters(8, 0, 10, 1, 1, 4, 8))
	for size, want := range map[int64]int64{1: 1, 2: 4, 4: 4, 5: 8, 9: 9} {
		if got := options.roundUp(size); got != want {
			t.Errorf("%d: got %d, want %d", size, got, want)
		}
	}
}

func TestABatchIsDroppedOnlyWhenAllItsTasksAreLate(t *testing.T) {
	now := time.Now()
	late, inTime := &task{deadline: now.Add(-time.Second)}, &task{deadline: now.Add(time.Second)}
	for name, test := range map[string]struct {
		tasks   []*task
		expired bool
		latest  time.Time
	}{
		"all late":        {[]*task{late, late}, true, late.deadline},
		"one in time":     {[]*task{late, inTime}, false, inTime.deadline},
		"one without":     {[]*task{late, {}}, false, time.Time{}},
		"none has one":    {[]*task{{}, {}}, false, time.Time{}},
		"the last counts": {[]*task{inTime, {deadline: now.Add(time.Minute)}}, false, now.Add(time.Minute)},
	} {
		latest, expired := latestDeadline(test.tasks, now)
		if expired != test.expired || !latest.Equal(test.latest) {
			t.Errorf("%s: got %v %v", name, latest, expired)
		}
	}
}

func TestShapesThatDifferNeedPadding(t *testing.T) {
	parts := []tensor{{[]int64{1, 2}, []float32{1, 2}}, {[]int64{1, 3}, []float32{5, 6, 7}}}
	if err := checkSameShapes(parts, false); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("without padding: got %v", err)
	}
	if err := checkSameShapes(parts, true); err != nil {
		t.Errorf("with padding: got %v", err)
	}
	grown := padded(parts)
	if want := []float32{1, 2, 1}; !equal(grown[0].values, want) {
		t.Errorf("padded to %v, want %v: the tensor's own first value", grown[0].values, want)
	}
}

func equal(a, b []float32) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

func TestTheDeviceDoesOneThingAtATime(t *testing.T) {
	const each = 20 * time.Millisecond
	gpu := newDevice("GPU-0", knobs{base: each})
	start := time.Now()
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			if err := gpu.execute(1, time.Time{}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if took := time.Since(start); took < 4*each {
		t.Errorf("4 executions of %s took %s together", each, took)
	}
}
