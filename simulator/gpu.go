package main

import (
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// device is the one GPU of the process: it executes one thing at a time, and an execution costs
// base + perExample x batch size.
type device struct {
	name             string
	base, perExample time.Duration
	free             chan struct{}
}

func newDevice(name string, k knobs) *device {
	d := &device{name: name, base: k.base, perExample: k.perExample, free: make(chan struct{}, 1)}
	d.free <- struct{}{}
	return d
}

// execute takes as long as a batch of that size would; a zero deadline is none.
func (d *device) execute(batchSize int64, deadline time.Time) error {
	if err := fault(); err != nil {
		return err
	}
	var expired <-chan time.Time
	if !deadline.IsZero() {
		timer := time.NewTimer(time.Until(deadline))
		defer timer.Stop()
		expired = timer.C
	}
	late := status.Error(codes.DeadlineExceeded, "Timed out waiting for notification")
	select {
	case <-d.free:
	case <-expired:
		return late
	}
	defer func() { d.free <- struct{}{} }() // work once begun is not cut short, so the device is busy until its end
	done := time.Now().Add(d.base + time.Duration(batchSize)*d.perExample)
	time.Sleep(time.Until(done))
	if !deadline.IsZero() && done.After(deadline) {
		return late
	}
	return nil
}
