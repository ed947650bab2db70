package main

import (
	"errors"
	"io/fs"
	"os"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// faultFile makes every prediction fail while it is there, with the text in it: a server that lives and answers
// status requests, and whose GPU is of no use. It is looked for in the server's own file system.
var faultFile = "/tmp/simulator_fault"

func fault() error {
	text, err := os.ReadFile(faultFile)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return status.Error(codes.Internal, err.Error())
	}
	return status.Error(codes.Internal, strings.TrimSpace(string(text)))
}
