package main

import (
	"log"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"tf-serving-simulator/internal/wire"
)

// queueOptions are BatchingParameters with their defaults filled in.
type queueOptions struct {
	maxBatch, maxEnqueued, maxExecution int64
	timeout                             time.Duration
	allowed                             []int64
	pad, split                          bool
}

const (
	defaultMaxBatch    = 1000
	defaultMaxEnqueued = 10
)

func newQueueOptions(p *wire.BatchingParameters) queueOptions {
	q := queueOptions{
		maxBatch: defaultMaxBatch, maxEnqueued: defaultMaxEnqueued,
		timeout: time.Duration(p.GetBatchTimeoutMicros().GetValue()) * time.Microsecond,
		allowed: p.GetAllowedBatchSizes(),
		pad:     p.GetPadVariableLengthInputs(), split: p.GetEnableLargeBatchSplitting().GetValue(),
	}
	if p.GetMaxBatchSize() != nil {
		q.maxBatch = p.MaxBatchSize.Value
	}
	if p.GetMaxEnqueuedBatches() != nil {
		q.maxEnqueued = p.MaxEnqueuedBatches.Value
	}
	q.maxExecution = q.maxBatch
	if q.split { // the server reads the wrapper even where it is unset, and so gets 0
		q.maxExecution = p.GetMaxExecutionBatchSize().GetValue()
	}
	return q
}

// check holds the rules that the server tries when a model version loads.
func (q *queueOptions) check() error {
	if n := len(q.allowed); n > 0 && q.allowed[n-1] != q.maxBatch {
		return invalid("Last entry in allowed_batch_sizes must match max_batch_size; last entry was %d; expected %d",
			q.allowed[n-1], q.maxBatch)
	}
	if q.maxEnqueued == 0 && !q.split {
		q.maxEnqueued = 1
	}
	switch {
	case q.maxBatch == 0:
		return invalid("input_batch_size_limit must be positive; was %d", q.maxBatch)
	case q.timeout < 0:
		return invalid("batch_timeout_micros must be non-negative; was %d", q.timeout.Microseconds())
	case q.maxEnqueued <= 0:
		return invalid("max_enqueued_batches must be positive; was %d", q.maxEnqueued)
	case q.split && q.maxExecution <= 0:
		return invalid("max_execution_batch_size must be positive when enable_large_batch_splitting is set; was %d", q.maxExecution)
	case q.split && q.maxBatch < q.maxExecution:
		return invalid("input_batch_size_limit must be greater than or equal to max_execution_batch_size when"+
			" enable_large_batch_splitting is true; was %d and %d", q.maxBatch, q.maxExecution)
	case q.maxBatch < 0: // becomes a huge unsigned number there: no limit
		q.maxBatch, q.maxExecution = 1<<62, 1<<62
	}
	return nil
}

// roundUp is the first allowed size that holds the batch; the order in the file counts.
func (q *queueOptions) roundUp(size int64) int64 {
	for _, allowed := range q.allowed {
		if allowed >= size {
			return allowed
		}
	}
	return size
}

// task is a request, or a piece of one, that waits for its batch.
type task struct {
	x        tensor
	size     int64
	enqueued time.Time
	deadline time.Time // zero: none
	result   chan outcome
}

type outcome struct {
	y   tensor
	err error
}

type batch struct {
	tasks  []*task
	size   int64
	opened time.Time // when the first task came
}

// batchScheduler shares one pool of threads among the queues of all models of the process.
type batchScheduler struct {
	mu     sync.Mutex
	work   *sync.Cond
	queues []*batchQueue
	next   int // whose turn it is
}

// batchQueue holds the batches of one signature of one model version; the last one is open for more tasks.
type batchQueue struct {
	queueOptions
	scheduler *batchScheduler
	batches   []*batch
	process   func(*batch)
}

func newBatchScheduler(p *wire.BatchingParameters, cpus int) (*batchScheduler, error) {
	threads := int64(cpus)
	if p.GetNumBatchThreads() != nil {
		threads = p.NumBatchThreads.Value
	}
	if threads < 1 {
		return nil, invalid("num_batch_threads must be positive; was %d", threads)
	}
	s := &batchScheduler{}
	s.work = sync.NewCond(&s.mu)
	for range threads {
		go s.run()
	}
	log.Printf("I batching with %d threads", threads)
	return s, nil
}

func (s *batchScheduler) addQueue(options queueOptions, process func(*batch)) *batchQueue {
	q := &batchQueue{queueOptions: options, scheduler: s, batches: []*batch{{}}, process: process}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queues = append(s.queues, q)
	return q
}

func (s *batchScheduler) removeQueue(q *batchQueue) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, other := range s.queues {
		if other == q {
			s.queues = append(s.queues[:i:i], s.queues[i+1:]...)
			return
		}
	}
}

// run is one batch thread.
func (s *batchScheduler) run() {
	for {
		s.mu.Lock()
		q, b := s.take()
		for b == nil {
			s.work.Wait()
			q, b = s.take()
		}
		s.mu.Unlock()
		q.process(b)
	}
}

// take gives the next batch that may run, looking at the queues in turn.
func (s *batchScheduler) take() (*batchQueue, *batch) {
	for range s.queues {
		q := s.queues[s.next%len(s.queues)]
		s.next++
		if b := q.take(time.Now()); b != nil {
			return q, b
		}
	}
	return nil, nil
}

func (q *batchQueue) open() *batch { return q.batches[len(q.batches)-1] }

// take removes the oldest batch when it is closed, full, or has waited long enough.
func (q *batchQueue) take(now time.Time) *batch {
	first := q.batches[0]
	if first == q.open() {
		if first.size == 0 || (first.size < q.maxExecution && now.Before(first.opened.Add(q.timeout))) {
			return nil
		}
		q.batches = append(q.batches, &batch{})
	}
	q.batches = q.batches[1:]
	return first
}

// schedule adds a request and waits for its result.
func (q *batchQueue) schedule(x tensor, deadline time.Time) (tensor, error) {
	size := x.shape[0]
	q.scheduler.mu.Lock()
	if err := q.admit(size); err != nil {
		q.scheduler.mu.Unlock()
		return tensor{}, err
	}
	var pieces []*task
	for _, cut := range q.cuts(size) {
		piece := &task{x: x.examples(cut[0], cut[1]), size: cut[1] - cut[0], enqueued: time.Now(),
			deadline: deadline, result: make(chan outcome, 1)}
		pieces = append(pieces, piece)
		q.add(piece)
	}
	q.scheduler.mu.Unlock()

	var parts []tensor
	var failed error
	for _, piece := range pieces { // the request's thread stays blocked, whatever its client does
		done := <-piece.result
		parts = append(parts, done.y)
		if failed == nil {
			failed = done.err
		}
	}
	if failed != nil {
		return tensor{}, failed
	}
	return join(parts), nil
}

// admit refuses what is too large for any batch, and what the queue has no room for.
func (q *batchQueue) admit(size int64) error {
	full := status.Error(codes.Unavailable, "The batch scheduling queue to which this task was submitted is full")
	free := q.maxEnqueued - int64(len(q.batches))
	switch {
	case size > q.maxBatch:
		return invalid("Task size %d is larger than maximum input batch size %d", size, q.maxBatch)
	case q.split && size > free*q.maxExecution+q.maxExecution-q.open().size:
		return full
	case !q.split && free <= 0 && q.open().size+size > q.maxBatch:
		return full
	}
	return nil
}

// cuts says which rows go into which piece: one piece, or with splitting what fits the open batch and then full ones.
func (q *batchQueue) cuts(size int64) [][2]int64 {
	if !q.split {
		return [][2]int64{{0, size}}
	}
	room := q.maxExecution - q.open().size
	if room == 0 {
		room = q.maxExecution
	}
	var cuts [][2]int64
	for from := int64(0); from < size; {
		to := min(size, from+room)
		cuts = append(cuts, [2]int64{from, to})
		from, room = to, q.maxExecution
	}
	return cuts
}

// add puts a task into the open batch, or into a new one. A batch that is not full is ready when its wait is over, and
// a thread may have to be woken for it then.
func (q *batchQueue) add(t *task) {
	if q.open().size+t.size > q.maxExecution {
		q.batches = append(q.batches, &batch{})
	}
	b := q.open()
	if len(b.tasks) == 0 {
		b.opened = t.enqueued
		if q.timeout > 0 {
			time.AfterFunc(q.timeout, func() { // with the lock: no thread is between looking and sleeping
				q.scheduler.mu.Lock()
				defer q.scheduler.mu.Unlock()
				q.scheduler.work.Signal()
			})
		}
	}
	b.tasks = append(b.tasks, t)
	b.size += t.size
	q.scheduler.work.Signal() // one task makes at most one batch ready; threads that are busy look before they sleep
}
