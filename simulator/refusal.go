package main

import "fmt"

// refusal ends the process before it serves.
type refusal struct {
	code    int
	message string
}

func (r *refusal) Error() string { return r.message }

const (
	exitRefused = 255 // what the real server's main returns (-1) when it does not start
	exitIgnored = 64  // the real server would start here, and ignore what was asked for
)

// refused is for what the real server refuses too.
func refused(format string, args ...any) error {
	return &refusal{exitRefused, fmt.Sprintf(format, args...)}
}

// ignored is for what the real server silently ignores: the simulator stops, so that the mistake is seen.
func ignored(format string, args ...any) error {
	return &refusal{exitIgnored, fmt.Sprintf(format, args...) +
		"\n(the real server would ignore this and start; the simulator refuses it)"}
}
