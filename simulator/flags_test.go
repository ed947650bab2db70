package main

import (
	"errors"
	"strings"
	"testing"
)

func TestEachVersionHasItsNumberOfFlags(t *testing.T) {
	for minor, want := range map[int]int{10: 42, 11: 43, 14: 43, 15: 46, 17: 46, 18: 47, 19: 48, 20: 48} {
		got := 0
		for _, f := range (&options{}).table() {
			if f.since <= minor {
				got++
			}
		}
		if got != want {
			t.Errorf("2.%d has %d flags, want %d", minor, got, want)
		}
	}
}

func TestFlagsAreReadAsTheServerReadsThem(t *testing.T) {
	version := serverVersion{2, 14, 1}
	for arg, want := range map[string]struct {
		code int
		part string
	}{
		"--enable_batching":                       {0, ""},
		"--enable_batching=TRUE":                  {0, ""},
		"--enable_batching=0":                     {0, ""},
		"--enable_batching=yes":                   {exitRefused, "true, false, 1 or 0"},
		"--enable_batching=":                      {exitRefused, "true, false, 1 or 0"},
		"--port=9000":                             {0, ""},
		"--port=9k":                               {exitRefused, "whole number"},
		"--port=1.5":                              {exitRefused, "whole number"},
		"--port":                                  {exitIgnored, "equals sign"},
		"-port=9000":                              {exitIgnored, "--name=value"},
		"9000":                                    {exitIgnored, "--name=value"},
		"--max_batch_size=8":                      {exitIgnored, "not a flag"},
		"--gpu_memory_fraction=0.5":               {exitIgnored, "not a flag"},
		"--enable_grpc_healthcheck_service=true":  {exitIgnored, "from 2.15 on"},
		"--per_process_gpu_memory_fraction=0.5":   {0, ""},
		"--per_process_gpu_memory_fraction=half":  {exitRefused, "a number"},
		"--load_retry_interval_micros=6000000000": {0, ""},
	} {
		_, err := parseFlags([]string{arg}, version, 2)
		var stop *refusal
		switch {
		case want.code == 0 && err != nil:
			t.Errorf("%s: %s", arg, err)
		case want.code != 0 && (!errors.As(err, &stop) || stop.code != want.code || !strings.Contains(stop.message, want.part)):
			t.Errorf("%s: got %v, want code %d and %q", arg, err, want.code, want.part)
		}
	}
}

func TestTheLastOfTwoFlagsWins(t *testing.T) {
	o, err := parseFlags([]string{"--port=1", "--port=2"}, serverVersion{2, 14, 1}, 2)
	if err != nil || o.port != 2 {
		t.Errorf("port %d, %v", o.port, err)
	}
}

func TestThreadDefaultsFollowTheCPUs(t *testing.T) {
	if o := defaultOptions(8); o.restThreads != 32 || o.grpcMaxThreads != 32 {
		t.Errorf("REST %d, gRPC %d, want 32 each", o.restThreads, o.grpcMaxThreads)
	}
}

func TestCombinationsOfFlags(t *testing.T) {
	base := []string{"--model_base_path=/models/m"}
	for _, test := range []struct {
		args []string
		want string // part of the error; empty: accepted
	}{
		{nil, ""},
		{[]string{"--port=0"}, "At least one of"},
		{[]string{"--port=0", "--grpc_socket_path=/tmp/s"}, ""},
		{[]string{"--model_base_path="}, "are empty"},
		{[]string{"--batching_parameters_file=/f"}, "without setting server_options.enable_batching"},
		{[]string{"--enable_batching", "--batching_parameters_file=/f"}, ""},
		{[]string{"--use_alts_credentials", "--ssl_config_file=/f"}, "use_alts_credentials must be false"},
		{[]string{"--tensorflow_session_parallelism=1", "--tensorflow_intra_op_parallelism=1", "--tensorflow_inter_op_parallelism=1"},
			"cannot configure all"},
		{[]string{"--tensorflow_session_parallelism=1", "--tensorflow_intra_op_parallelism=1"}, "no effect beside"},
		{[]string{"--enable_per_model_batching_parameters"}, "without --enable_batching"},
		{[]string{"--platform_config_file=/f", "--enable_batching"}, "no effect together"},
		{[]string{"--model_config_file_poll_wait_seconds=5"}, "without --model_config_file"},
		{[]string{"--monitoring_config_file=/f"}, "--rest_api_port"},
		{[]string{"--monitoring_config_file=/f", "--rest_api_port=1"}, ""},
		{[]string{"--grpc_channel_arguments=grpc.max_connection_age_ms=5000"}, ""},
		{[]string{"--grpc_channel_arguments=a=1,b"}, "has no '='"},
		{[]string{"--rest_api_num_threads=0"}, "a thread pool needs"},
	} {
		o, err := parseFlags(append(base, test.args...), serverVersion{2, 14, 1}, 2)
		if err != nil {
			t.Fatal(err)
		}
		err = checkOptions(o)
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%v: got %v, want %q", test.args, err, test.want)
		}
	}
}

func TestVersionsThatCanBeSimulated(t *testing.T) {
	for text, want := range map[string]string{
		"2.14.1": "", "2.10.0": "", "2.19.1": "", "2.15.1": "",
		"2.15.0": "no such release", "2.16.0": "no such release", "2.9.0": "2.10 to 2.20", "3.0.0": "2.10 to 2.20",
		"latest": "want X.Y.Z", "2.14": "want X.Y.Z",
	} {
		_, err := parseVersion(text)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", text, err, want)
		}
	}
}

func TestAServerIsGivenExactlyOneGPU(t *testing.T) {
	for visible, accepted := range map[string]bool{
		"GPU-8a4d9a3c-1111-2222-3333-444455556666": true, "0": true, "0:1": true,
		"MIG-8a4d9a3c-1111-2222-3333-444455556666": true, "MIG-GPU-8a4d9a3c/1/0": true,
		"": false, "void": false, "none": false, "all": false, "0,1": false, "GPU-1,GPU-2": false,
	} {
		environment := map[string]string{"NVIDIA_VISIBLE_DEVICES": visible}
		if _, err := givenGPU(func(name string) string { return environment[name] }, false); (err == nil) != accepted {
			t.Errorf("%q: %v", visible, err)
		}
		if _, err := givenGPU(func(name string) string { return environment[name] }, true); err != nil {
			t.Errorf("%q with SIM_ALLOW_ANY_GPU: %v", visible, err)
		}
	}
}

func TestVariablesThatTensorFlowWouldMisread(t *testing.T) {
	for name, test := range map[string]struct {
		variable, value string
		accepted        bool
	}{
		"growth":             {"TF_FORCE_GPU_ALLOW_GROWTH", "true", true},
		"growth as a number": {"TF_FORCE_GPU_ALLOW_GROWTH", "1", false},
		"growth in capitals": {"TF_FORCE_GPU_ALLOW_GROWTH", "True", false},
		"the host's index":   {"CUDA_VISIBLE_DEVICES", "2", false},
		"the only index":     {"CUDA_VISIBLE_DEVICES", "0", true},
		"the same GPU":       {"CUDA_VISIBLE_DEVICES", "GPU-aa", true},
	} {
		environment := map[string]string{"NVIDIA_VISIBLE_DEVICES": "GPU-aaaa", test.variable: test.value}
		if _, err := givenGPU(func(name string) string { return environment[name] }, false); (err == nil) != test.accepted {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestUnknownKnobsAreRefused(t *testing.T) {
	if _, err := readKnobs([]string{"PATH=/", "SIM_BASE_MS=5", "SIM_PER_EXAMPLE_MS=0.25"}); err != nil {
		t.Error(err)
	}
	for _, bad := range []string{"SIM_BASE=5", "SIM_BASE_MS=5ms", "SIM_BASE_MS=-1", "SIM_LOAD_SECONDS="} {
		if _, err := readKnobs([]string{bad}); err == nil {
			t.Errorf("%s was accepted", bad)
		}
	}
}
