package main

import (
	"regexp"
	"strconv"
	"strings"
	"time"
)

// knobs are the simulator's own settings. They come from variables named SIM_..., never from flags.
type knobs struct {
	base, perExample time.Duration // what one execution on the GPU costs: base + perExample x batch size
	load             time.Duration // how long a version takes to load
	anyGPU           bool          // start without exactly one GPU: unit tests and CPU images
	bindAddress      string        // listen on this address alone; empty: on those of the real server
}

func readKnobs(environment []string) (knobs, error) {
	var k knobs
	for _, entry := range environment {
		name, value, _ := strings.Cut(entry, "=")
		if !strings.HasPrefix(name, "SIM_") {
			continue
		}
		var err error
		switch name {
		case "SIM_BASE_MS":
			k.base, err = parseDuration(value, time.Millisecond)
		case "SIM_PER_EXAMPLE_MS":
			k.perExample, err = parseDuration(value, time.Millisecond)
		case "SIM_LOAD_SECONDS":
			k.load, err = parseDuration(value, time.Second)
		case "SIM_ALLOW_ANY_GPU":
			k.anyGPU, err = strconv.ParseBool(value)
		case "SIM_BIND_ADDRESS":
			k.bindAddress = value
		default:
			return k, refused("%s: no such knob; there are SIM_BASE_MS, SIM_PER_EXAMPLE_MS, SIM_LOAD_SECONDS,"+
				" SIM_ALLOW_ANY_GPU and SIM_BIND_ADDRESS", name)
		}
		if err != nil {
			return k, refused("%s=%q: want a number (SIM_ALLOW_ANY_GPU: 0 or 1)", name, value)
		}
	}
	return k, nil
}

func parseDuration(text string, unit time.Duration) (time.Duration, error) {
	number, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	if err == nil && !(number >= 0 && number < 1e6) {
		err = strconv.ErrRange
	}
	return time.Duration(number * float64(unit)), err
}

// oneGPU is how one device is named: by index, UUID, MIG UUID (old and new), or index:MIG index.
var oneGPU = regexp.MustCompile(`^(\d+|\d+:\d+|GPU-[0-9A-Za-z-]+|MIG-[0-9A-Za-z-]+|MIG-GPU-[0-9A-Za-z-]+/\d+/\d+)$`)

// givenGPU is the one device that the container runtime let this process see.
// A SavedModel computes on the first visible device only, so a server with none or several is a mistake.
func givenGPU(getenv func(string) string, anyGPU bool) (string, error) {
	visible := getenv("NVIDIA_VISIBLE_DEVICES")
	if !anyGPU && !oneGPU.MatchString(visible) {
		return "", ignored("NVIDIA_VISIBLE_DEVICES=%q: a GPU server wants exactly one device."+
			" Request one by its UUID (docker run --gpus '\"device=GPU-...\"'), or set SIM_ALLOW_ANY_GPU=1", visible)
	}
	if cuda := getenv("CUDA_VISIBLE_DEVICES"); cuda != "" && cuda != "0" && !anyGPU && !strings.HasPrefix(visible, cuda) {
		return "", ignored("CUDA_VISIBLE_DEVICES=%q: inside the container the only device is 0 (%s);"+
			" TensorFlow would find none and compute on the CPU. Leave it unset", cuda, visible)
	}
	if growth := getenv("TF_FORCE_GPU_ALLOW_GROWTH"); growth != "" && growth != "true" && growth != "false" {
		return "", ignored("TF_FORCE_GPU_ALLOW_GROWTH=%q: TensorFlow takes exactly true or false", growth)
	}
	return visible, nil
}
