package main

import (
	"log"
	"strconv"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// signatures of the model: the name of each, and the method that it is for.
var signatures = map[string]string{
	"serving_default": "tensorflow/serving/predict",
	"classify_x_to_y": "tensorflow/serving/classify",
	"regress_x_to_y":  "tensorflow/serving/regress",
}

// batchSession puts a queue in front of the device for every signature of one model version.
type batchSession struct {
	scheduler *batchScheduler
	queues    map[string]*batchQueue
}

func newBatchSession(s *batchScheduler, options queueOptions, gpu *device, stats *metrics) (*batchSession, error) {
	if err := options.check(); err != nil {
		return nil, err
	}
	session := &batchSession{scheduler: s, queues: map[string]*batchQueue{}}
	for name := range signatures {
		session.queues[name] = s.addQueue(options, func(b *batch) { executeBatch(b, options, gpu, stats) })
	}
	return session, nil
}

func (b *batchSession) close() {
	for _, q := range b.queues {
		b.scheduler.removeQueue(q)
	}
}

func (b *batchSession) run(signature string, x tensor, deadline time.Time, stats *metrics) (tensor, error) {
	if len(x.shape) == 0 {
		return tensor{}, invalid("Batching session Run() input tensors must have at least one dimension")
	}
	stats.observe(inputBatchSize, float64(x.shape[0]))
	return b.queues[signature].schedule(x, deadline)
}

// executeBatch runs one batch on the device and hands each task its rows.
func executeBatch(b *batch, options queueOptions, gpu *device, stats *metrics) {
	now := time.Now()
	parts := make([]tensor, len(b.tasks))
	for i, t := range b.tasks {
		parts[i] = t.x
		stats.observe(queuingLatency, float64(now.Sub(t.enqueued).Microseconds()), "")
	}
	deadline, expired := latestDeadline(b.tasks, now)
	err := status.Error(codes.ResourceExhausted, "Run() timeout exceeded while waiting in batching queue")
	if !expired {
		err = checkSameShapes(parts, options.pad)
	}
	if err == nil {
		if options.pad {
			parts = padded(parts)
		}
		size := options.roundUp(b.size)
		stats.observe(paddingSize, float64(size-b.size), strconv.FormatInt(size, 10))
		stats.observe(processedBatchSize, float64(size))
		stats.add(wrappedRunCount, 1)
		err = gpu.execute(size, deadline)
	}
	if err != nil {
		log.Printf("W batch of %d: %s", b.size, err)
	}
	for i, t := range b.tasks {
		if err != nil {
			t.result <- outcome{err: err}
		} else {
			t.result <- outcome{y: halfPlusTwo(parts[i])}
		}
	}
}

// latestDeadline is what a whole batch runs under: the last one of its tasks, none where a task has none.
// Only when every task is late is the batch dropped.
func latestDeadline(tasks []*task, now time.Time) (latest time.Time, expired bool) {
	expired = true
	for _, t := range tasks {
		if t.deadline.IsZero() {
			return time.Time{}, false
		}
		if t.deadline.After(now) {
			expired = false
		}
		if t.deadline.After(latest) {
			latest = t.deadline
		}
	}
	return latest, expired
}
