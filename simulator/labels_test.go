package main

import (
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"tf-serving-simulator/internal/wire"
)

func labelled(labels map[string]int64) []*wire.ModelConfig {
	return []*wire.ModelConfig{{Name: "m", VersionLabels: labels}}
}

func TestALabelNeedsAVersionThatServes(t *testing.T) {
	for name, test := range map[string]struct {
		before  map[string]int64
		next    map[string]int64
		allow   bool
		serving []int64
		refused bool
	}{
		"cold start":               {nil, map[string]int64{"stable": 1}, false, nil, true},
		"cold start with the flag": {nil, map[string]int64{"stable": 1}, true, nil, false},
		"serves":                   {nil, map[string]int64{"stable": 1}, false, []int64{1}, false},
		"moved to one that serves": {map[string]int64{"stable": 1}, map[string]int64{"stable": 2}, true, []int64{1, 2}, false},
		"moved to one that does not, flag or not": {map[string]int64{"stable": 1}, map[string]int64{"stable": 2}, true, []int64{1}, true},
		"kept while its version is gone":          {map[string]int64{"stable": 1}, map[string]int64{"stable": 1}, true, nil, false},
		"kept while gone, without the flag":       {map[string]int64{"stable": 1}, map[string]int64{"stable": 1}, false, nil, true},
		"a second label is new":                   {map[string]int64{"stable": 1}, map[string]int64{"stable": 1, "canary": 2}, true, []int64{1}, false},
	} {
		labels := &labelMap{}
		if test.before != nil {
			if err := labels.update(labelled(test.before), true, func(string, int64) bool { return true }); err != nil {
				t.Fatal(err)
			}
		}
		err := labels.update(labelled(test.next), test.allow, func(_ string, version int64) bool {
			for _, serving := range test.serving {
				if serving == version {
					return true
				}
			}
			return false
		})
		if test.refused != (status.Code(err) == codes.FailedPrecondition) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestARefusedUpdateLeavesAllLabelsAsTheyWere(t *testing.T) {
	labels := &labelMap{}
	always := func(string, int64) bool { return true }
	if err := labels.update(labelled(map[string]int64{"stable": 1}), false, always); err != nil {
		t.Fatal(err)
	}
	err := labels.update(labelled(map[string]int64{"stable": 2, "canary": 3}), false,
		func(_ string, version int64) bool { return version == 2 })
	if err == nil {
		t.Fatal("accepted")
	}
	if version, err := labels.version("m", "stable"); version != 1 || err != nil {
		t.Errorf("stable is %d (%v), want 1", version, err)
	}
	if _, err := labels.version("m", "canary"); status.Code(err) != codes.InvalidArgument {
		t.Errorf("canary: got %v", err)
	}
}
