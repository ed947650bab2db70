package main

import (
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"tf-serving-simulator/internal/wire"
)

// labelMap holds which version each label of each model stands for.
type labelMap struct {
	mu     sync.Mutex
	labels map[string]map[string]int64
}

// update replaces all labels, or none of them. A label may name a version that does not serve only where the flag
// allows it, and then only if the label does not stand for another version already.
func (l *labelMap) update(models []*wire.ModelConfig, allowUnavailable bool, available func(string, int64) bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	next := map[string]map[string]int64{}
	for _, model := range models {
		next[model.Name] = map[string]int64{}
		for label, version := range model.VersionLabels {
			current, exists := l.labels[model.Name][label]
			allowed := allowUnavailable && (!exists || current == version)
			if !allowed && !available(model.Name, version) {
				return status.Errorf(codes.FailedPrecondition, "Request to assign label to version %d of model %s,"+
					" which is not currently available for inference", version, model.Name)
			}
			next[model.Name][label] = version
		}
	}
	l.labels = next
	return nil
}

func (l *labelMap) version(model, label string) (int64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.labels == nil {
		return 0, status.Errorf(codes.Unavailable, "Model labels does not init yet.%s", label)
	}
	if version, found := l.labels[model][label]; found {
		return version, nil
	}
	return 0, invalid("Unrecognized servable version label: %s", label)
}
