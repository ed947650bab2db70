package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestExecutionsFailWithTheTextInTheFaultFileForAsLongAsItIsThere(t *testing.T) {
	kept := faultFile
	defer func() { faultFile = kept }()
	faultFile = filepath.Join(t.TempDir(), "fault")
	gpu := newDevice("0", knobs{})
	if err := gpu.execute(1, time.Time{}); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(faultFile, []byte("CUDA_ERROR_ILLEGAL_ADDRESS\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	got := gpu.execute(1, time.Time{})
	if status.Code(got) != codes.Internal || status.Convert(got).Message() != "CUDA_ERROR_ILLEGAL_ADDRESS" {
		t.Errorf("with the file there: %v", got)
	}
	if err := os.Remove(faultFile); err != nil {
		t.Fatal(err)
	}
	if err := gpu.execute(1, time.Time{}); err != nil {
		t.Errorf("with the file gone: %v", err)
	}
}
