package main

import (
	"fmt"
	"log"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"tf-serving-simulator/internal/wire"
)

// source polls the base directories and tells the manager which versions should be there.
type source struct {
	manager *manager
	mu      sync.Mutex
	models  []*wire.ModelConfig
}

// start polls now and then every so often: 0 polls once, a negative period never does.
func (s *source) start(periodSeconds int32) {
	if periodSeconds < 0 {
		log.Printf("W --file_system_poll_wait_seconds=%d: the file system is never polled, no model will load", periodSeconds)
		return
	}
	s.poll()
	if periodSeconds > 0 {
		go func() {
			for {
				time.Sleep(time.Duration(periodSeconds) * time.Second)
				s.poll()
			}
		}()
	}
}

// update replaces the list of models and gives the old one. Those left out are unloaded; new ones wait for the next poll.
func (s *source) update(models []*wire.ModelConfig) (before []*wire.ModelConfig) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, old := range s.models {
		if !slices.ContainsFunc(models, func(m *wire.ModelConfig) bool { return m.Name == old.Name }) {
			s.manager.aspire(old.Name, nil)
		}
	}
	before, s.models = s.models, models
	return before
}

// poll reads all base directories first: one that is missing ends the poll for every model.
func (s *source) poll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	aspired := make([]map[int64]string, len(s.models))
	for i, model := range s.models {
		versions, err := wantedVersions(model)
		if err != nil {
			log.Printf("E FileSystemStoragePathSource encountered a filesystem access error: %s", err)
			return
		}
		aspired[i] = versions
	}
	for i, model := range s.models {
		s.manager.aspire(model.Name, aspired[i])
	}
}

// wantedVersions applies a model's policy to the version directories that are there.
func wantedVersions(model *wire.ModelConfig) (map[int64]string, error) {
	entries, err := os.ReadDir(model.BasePath)
	if err != nil {
		return nil, fmt.Errorf("Could not find base path %s for servable %s: %w", model.BasePath, model.Name, err) //nolint:staticcheck // as logged by the real server
	}
	found := map[int64]string{}
	for _, entry := range entries {
		// Whatever the entry is, only a name that reads as a number of 64 bits is a version.
		number, err := strconv.ParseInt(entry.Name(), 10, 64)
		if err != nil {
			continue
		}
		if other, twice := found[number]; twice {
			log.Printf("W %s and %s name the same version; the second is taken", other, entry.Name())
		}
		found[number] = filepath.Join(model.BasePath, entry.Name())
	}
	if len(found) == 0 {
		log.Printf("W No versions of servable %s found under base path %s. Did you forget to name your leaf directory"+
			" as a number (eg. '/1/')?", model.Name, model.BasePath)
	}
	return applyPolicy(model, found), nil
}

func applyPolicy(model *wire.ModelConfig, found map[int64]string) map[int64]string {
	policy := model.GetModelVersionPolicy()
	if policy.GetAll() != nil {
		return found
	}
	wanted := map[int64]string{}
	if specific := policy.GetSpecific(); specific != nil {
		if len(specific.Versions) == 0 {
			log.Printf("W model %s: the specific version policy names no version", model.Name)
		}
		for _, number := range specific.Versions {
			if dir, ok := found[number]; ok {
				wanted[number] = dir
			} else {
				log.Printf("W Version %d of servable %s, which was requested to be served as a 'specific' version"+
					" in the servable's version policy, was not found in the file system", number, model.Name)
			}
		}
		return wanted
	}
	numbers := make([]int64, 0, len(found))
	for number := range found {
		numbers = append(numbers, number)
	}
	slices.Sort(numbers)
	latest := max(1, int(policy.GetLatest().GetNumVersions()))
	for _, number := range numbers[max(0, len(numbers)-latest):] {
		wanted[number] = found[number]
	}
	return wanted
}
