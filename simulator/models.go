package main

import (
	"fmt"
	"log"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"tf-serving-simulator/internal/wire"
)

// How often the manager looks for something to load or unload.
const manageInterval = 100 * time.Millisecond

const (
	stateStart     = wire.ModelVersionStatus_START
	stateLoading   = wire.ModelVersionStatus_LOADING
	stateAvailable = wire.ModelVersionStatus_AVAILABLE
	stateUnloading = wire.ModelVersionStatus_UNLOADING
	stateEnd       = wire.ModelVersionStatus_END
)

// modelVersion is what is known of one version of one model: also of one that is gone.
type modelVersion struct {
	model   string
	number  int64
	dir     string
	state   wire.ModelVersionStatus_State
	err     error // why it ended, where it failed to load
	aspired bool  // the last poll wanted it
	loaded  *servable
}

func (v *modelVersion) String() string {
	return fmt.Sprintf("{name: %s version: %d}", v.model, v.number)
}

// manager moves versions towards what the polls want, and never leaves a model without a version that serves
// while the next one loads.
type manager struct {
	loader        *loader
	retries       int
	retryInterval time.Duration

	mu      sync.Mutex
	changed *sync.Cond
	models  map[string]map[int64]*modelVersion
	pending map[string]map[int64]string // what polls asked for since the manager last looked

	loadSlots, unloadSlots chan struct{} // nil: one after the other, in the manager's own loop
}

func newManager(l *loader, o *options, initialThreads int) *manager {
	m := &manager{
		loader: l, retries: int(o.maxLoadRetries), retryInterval: time.Duration(o.loadRetryMicros) * time.Microsecond,
		models: map[string]map[int64]*modelVersion{}, pending: map[string]map[int64]string{},
		loadSlots: threadSlots(initialThreads), unloadSlots: threadSlots(int(o.unloadThreads)),
	}
	m.changed = sync.NewCond(&m.mu)
	go func() {
		for ; ; time.Sleep(manageInterval) {
			m.step()
		}
	}()
	return m
}

func threadSlots(threads int) chan struct{} {
	if threads <= 0 {
		return nil
	}
	return make(chan struct{}, threads)
}

// endInitialLoad switches from the many threads of the first load to those that the flag allows.
func (m *manager) endInitialLoad(threads int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.loadSlots = threadSlots(threads)
}

// aspire says which versions of a model should be there, by number and directory. The manager takes it up when it
// looks next: not while it loads something in its own loop.
func (m *manager) aspire(model string, versions map[int64]string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pending[model] = versions
}

// takeUp marks what is wanted now. A request that wants back a version on its way out waits until that one is gone.
func (m *manager) takeUp(model string, versions map[int64]string) {
	known := m.models[model]
	for number := range versions {
		if v := known[number]; v != nil && !v.aspired && v.state != stateEnd {
			return
		}
	}
	delete(m.pending, model)
	if known == nil && len(versions) > 0 {
		known = map[int64]*modelVersion{}
		m.models[model] = known
	}
	for number, dir := range versions {
		// One that failed stays failed for as long as it is wanted; one that went away may come back.
		if v := known[number]; v == nil || !v.aspired {
			known[number] = &modelVersion{model: model, number: number, dir: dir, state: stateStart, aspired: true}
		}
	}
	for number, v := range known {
		if _, v.aspired = versions[number]; !v.aspired && v.state == stateStart {
			v.state = stateEnd
		}
	}
}

// step does for each model the one thing that comes next.
func (m *manager) step() {
	m.mu.Lock()
	for model, versions := range m.pending {
		m.takeUp(model, versions)
	}
	var loads, unloads []*modelVersion
	for _, name := range slices.Sorted(maps.Keys(m.models)) {
		if v, load := nextAction(m.models[name]); v != nil && load {
			v.state = stateLoading
			loads = append(loads, v)
		} else if v != nil {
			v.state = stateUnloading
			unloads = append(unloads, v)
		}
	}
	loadSlots, unloadSlots := m.loadSlots, m.unloadSlots
	m.changed.Broadcast()
	m.mu.Unlock()
	for _, v := range unloads {
		inSlot(unloadSlots, func() { m.unload(v) })
	}
	for _, v := range loads {
		inSlot(loadSlots, func() { m.load(v) })
	}
}

func inSlot(slots chan struct{}, work func()) {
	if slots == nil {
		work()
		return
	}
	go func() {
		slots <- struct{}{}
		defer func() { <-slots }()
		work()
	}()
}

// nextAction is the availability-preserving policy: unload what is no longer wanted only when something wanted
// serves (or nothing is wanted at all), else load the highest wanted version.
func nextAction(versions map[int64]*modelVersion) (next *modelVersion, load bool) {
	var wanted, serves bool
	var unload, start *modelVersion
	for _, number := range slices.Sorted(maps.Keys(versions)) {
		switch v := versions[number]; {
		case v.aspired:
			wanted = true
			serves = serves || v.state == stateAvailable
			if v.state == stateStart {
				start = v
			}
		case v.state == stateAvailable && unload == nil:
			unload = v
		}
	}
	if unload != nil && (!wanted || serves) {
		return unload, false
	}
	return start, true
}

func (m *manager) load(v *modelVersion) {
	for attempt := 0; ; attempt++ {
		log.Printf("I Loading servable version %s from %s", v, v.dir)
		loaded, err := m.loader.load(v.model, v.number, v.dir)
		switch {
		case err != nil && attempt < m.retries && m.wanted(v):
			log.Printf("E Loading servable: %s failed: %s; next try in %s", v, describe(err), m.retryInterval)
			time.Sleep(m.retryInterval)
			continue
		case err != nil:
			log.Printf("E Servable %s cannot be loaded: %s", v, describe(err))
			m.setState(v, stateEnd, nil, err)
		case !m.wanted(v):
			loaded.close()
			m.setState(v, stateEnd, nil, status.Error(codes.Canceled, "Loading of servable cancelled"))
		default:
			m.setState(v, stateAvailable, loaded, nil)
			log.Printf("I Successfully loaded servable version %s", v)
		}
		return
	}
}

func (m *manager) wanted(v *modelVersion) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return v.aspired
}

func (m *manager) unload(v *modelVersion) {
	log.Printf("I Quiescing servable version %s", v)
	v.loaded.close()
	m.setState(v, stateEnd, nil, nil)
	log.Printf("I Done unloading servable version %s", v)
}

func (m *manager) setState(v *modelVersion, state wire.ModelVersionStatus_State, loaded *servable, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	v.state, v.loaded, v.err = state, loaded, err
	m.changed.Broadcast()
}

// waitAvailable blocks until each model has a version that serves; it fails when all versions of one have ended.
// It has no end of its own: a model without any version keeps it waiting for ever, as in the real server.
func (m *manager) waitAvailable(models []string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for {
		var failed []string
		waiting := false
		for _, name := range models {
			switch settled, failure := reached(m.models[name]); {
			case !settled:
				waiting = true
			case failure != nil:
				failed = append(failed, fmt.Sprintf("{{name: %s version: latest} due to error: %s}, ", name, describe(failure)))
			}
		}
		if !waiting && len(failed) == 0 {
			return nil
		}
		if !waiting {
			return status.Errorf(codes.Unknown, "%d servable(s) did not become available: {%s}", len(failed), strings.Join(failed, ""))
		}
		m.changed.Wait()
	}
}

// reached says whether one version serves, or all of them have ended and with which error.
func reached(versions map[int64]*modelVersion) (settled bool, failure error) {
	settled = len(versions) > 0
	for _, v := range versions {
		switch v.state {
		case stateAvailable:
			return true, nil
		case stateEnd:
			failure = v.err
			if failure == nil {
				failure = status.Error(codes.Unknown, "unloaded")
			}
		default:
			settled = false
		}
	}
	return settled, failure
}

// acquire gives a version that serves, the highest one where none is named. The caller must release it.
func (m *manager) acquire(model string, version *int64) (*servable, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var found *servable
	for number, v := range m.models[model] {
		if v.state == stateAvailable && (version == nil && (found == nil || number > found.version) ||
			version != nil && number == *version) {
			found = v.loaded
		}
	}
	switch {
	case found != nil:
		found.inUse.Add(1)
		return found, nil
	case version == nil:
		return nil, status.Errorf(codes.NotFound, "Servable not found for request: Latest(%s)", model)
	}
	return nil, status.Errorf(codes.NotFound, "Servable not found for request: Specific(%s, %d)", model, *version)
}

// statuses lists the versions ever tracked, highest first.
func (m *manager) statuses(model string) []*wire.ModelVersionStatus {
	m.mu.Lock()
	defer m.mu.Unlock()
	var list []*wire.ModelVersionStatus
	for _, number := range slices.Backward(slices.Sorted(maps.Keys(m.models[model]))) {
		v := m.models[model][number]
		list = append(list, &wire.ModelVersionStatus{Version: number, State: v.state, Status: statusProto(v.err)})
	}
	return list
}

// available tells whether a version serves now.
func (m *manager) available(model string, version int64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	v := m.models[model][version]
	return v != nil && v.state == stateAvailable
}
