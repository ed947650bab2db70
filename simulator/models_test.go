package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"tf-serving-simulator/internal/wire"
)

func TestTheNextActionKeepsAModelAvailable(t *testing.T) {
	version := func(state wire.ModelVersionStatus_State, aspired bool) *modelVersion {
		return &modelVersion{state: state, aspired: aspired}
	}
	for name, test := range map[string]struct {
		versions map[int64]*modelVersion
		next     int64 // 0: nothing to do
		load     bool
	}{
		"first version": {map[int64]*modelVersion{1: version(stateStart, true)}, 1, true},
		"a new version loads before the old one goes": {map[int64]*modelVersion{
			1: version(stateAvailable, false), 2: version(stateStart, true)}, 2, true},
		"the old one stays while the new one loads": {map[int64]*modelVersion{
			1: version(stateAvailable, false), 2: version(stateLoading, true)}, 0, false},
		"the old one goes when the new one serves": {map[int64]*modelVersion{
			1: version(stateAvailable, false), 2: version(stateAvailable, true)}, 1, false},
		"the old one stays when the new one failed": {map[int64]*modelVersion{
			1: version(stateAvailable, false), 2: version(stateEnd, true)}, 0, false},
		"nothing is wanted": {map[int64]*modelVersion{1: version(stateAvailable, false)}, 1, false},
		"the highest loads first": {map[int64]*modelVersion{
			1: version(stateStart, true), 3: version(stateStart, true), 2: version(stateStart, true)}, 3, true},
	} {
		for number, v := range test.versions {
			v.number = number
		}
		v, load := nextAction(test.versions)
		got := int64(0)
		if v != nil {
			got = v.number
		}
		if got != test.next || v != nil && load != test.load {
			t.Errorf("%s: version %d (load %v), want %d (load %v)", name, got, load, test.next, test.load)
		}
	}
}

func modelFolder(t *testing.T, versions ...string) string {
	t.Helper()
	base := filepath.Join(t.TempDir(), "m")
	if err := os.MkdirAll(base, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, version := range versions {
		addVersion(t, base, version)
	}
	return base
}

func addVersion(t *testing.T, base, version string) {
	t.Helper()
	unfinished := filepath.Join(base, "unfinished")
	if err := os.MkdirAll(unfinished, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(unfinished, "saved_model.pb"), []byte("model"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(unfinished, filepath.Join(base, version)); err != nil {
		t.Fatal(err)
	}
}

func TestPoliciesChooseAmongNamesThatAreNumbers(t *testing.T) {
	base := modelFolder(t, "1", "2", "00000010", "v3", "0.4", "5.tmp", "99999999999999999999")
	type servablePolicy = wire.FileSystemStoragePathSourceConfig_ServableVersionPolicy
	latest := func(n uint32) *servablePolicy {
		return &servablePolicy{PolicyChoice: &wire.FileSystemStoragePathSourceConfig_ServableVersionPolicy_Latest_{
			Latest: &wire.FileSystemStoragePathSourceConfig_ServableVersionPolicy_Latest{NumVersions: n}}}
	}
	specific := func(versions ...int64) *servablePolicy {
		return &servablePolicy{PolicyChoice: &wire.FileSystemStoragePathSourceConfig_ServableVersionPolicy_Specific_{
			Specific: &wire.FileSystemStoragePathSourceConfig_ServableVersionPolicy_Specific{Versions: versions}}}
	}
	all := &servablePolicy{PolicyChoice: &wire.FileSystemStoragePathSourceConfig_ServableVersionPolicy_All_{
		All: &wire.FileSystemStoragePathSourceConfig_ServableVersionPolicy_All{}}}
	for name, test := range map[string]struct {
		policy *servablePolicy
		want   []int64
	}{
		"unset": {nil, []int64{10}}, "latest 0": {latest(0), []int64{10}}, "latest 2": {latest(2), []int64{2, 10}},
		"all": {all, []int64{1, 2, 10}}, "specific": {specific(1, 2), []int64{1, 2}}, "one is absent": {specific(2, 7), []int64{2}},
		"none named": {specific(), nil},
	} {
		found, err := wantedVersions(&wire.ModelConfig{Name: "m", BasePath: base, ModelVersionPolicy: test.policy})
		if err != nil {
			t.Fatal(err)
		}
		var got []int64
		for number := range found {
			got = append(got, number)
		}
		slices.Sort(got)
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}

func newTestManager(retries int32, interval time.Duration) *manager {
	o := defaultOptions(1)
	o.maxLoadRetries, o.loadRetryMicros = retries, interval.Microseconds()
	settings := sessionSettings{tags: []string{"serve"}}
	return newManager(&loader{settings: settings, gpu: newDevice("GPU-0", knobs{}), stats: newMetrics()}, o, 1)
}

// waitState fails the test unless the version gets there.
func waitState(t *testing.T, m *manager, version int64, want wire.ModelVersionStatus_State) *wire.ModelVersionStatus {
	t.Helper()
	var last []*wire.ModelVersionStatus
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		last = m.statuses("m")
		for _, one := range last {
			if one.Version == version && one.State == want {
				return one
			}
		}
	}
	t.Fatalf("version %d never came to %s; last %v", version, want, last)
	return nil
}

func TestOneMissingBasePathStopsThePollForAllModels(t *testing.T) {
	m := newTestManager(0, 0)
	base := modelFolder(t, "1")
	gone := &wire.ModelConfig{Name: "gone", BasePath: filepath.Join(base, "absent")}
	s := &source{manager: m, models: []*wire.ModelConfig{{Name: "m", BasePath: base}, gone}}
	s.poll()
	if len(m.pending) != 0 {
		t.Errorf("the manager was told about %v", m.pending)
	}
	s.update([]*wire.ModelConfig{{Name: "m", BasePath: base}})
	s.poll()
	waitState(t, m, 1, stateAvailable)
}

func TestAnEmptiedBasePathUnloadsEveryVersion(t *testing.T) {
	m := newTestManager(0, 0)
	base := modelFolder(t, "1")
	s := &source{manager: m, models: []*wire.ModelConfig{{Name: "m", BasePath: base}}}
	s.poll()
	waitState(t, m, 1, stateAvailable)
	if err := os.RemoveAll(filepath.Join(base, "1")); err != nil {
		t.Fatal(err)
	}
	s.poll()
	waitState(t, m, 1, stateEnd)
	if _, err := m.acquire("m", nil); status.Code(err) != codes.NotFound {
		t.Errorf("got %v", err)
	}
}

func TestAVersionInUseIsUnloadedWhenItsLastRequestIsDone(t *testing.T) {
	m := newTestManager(0, 0)
	base := modelFolder(t, "1")
	s := &source{manager: m, models: []*wire.ModelConfig{{Name: "m", BasePath: base}}}
	s.poll()
	waitState(t, m, 1, stateAvailable)
	held, err := m.acquire("m", nil)
	if err != nil {
		t.Fatal(err)
	}
	s.update(nil)
	waitState(t, m, 1, stateUnloading)
	time.Sleep(2 * manageInterval)
	if state := m.statuses("m")[0].State; state != stateUnloading {
		t.Errorf("%s although a request holds it", state)
	}
	held.inUse.Done()
	waitState(t, m, 1, stateEnd)
}

func TestALoadThatFailsIsRetriedAndThenGivenUp(t *testing.T) {
	m := newTestManager(2, 10*time.Millisecond)
	base := modelFolder(t)
	if err := os.MkdirAll(filepath.Join(base, "1"), 0o755); err != nil {
		t.Fatal(err)
	}
	s := &source{manager: m, models: []*wire.ModelConfig{{Name: "m", BasePath: base}}}
	s.poll()
	end := waitState(t, m, 1, stateEnd)
	if !strings.Contains(end.Status.ErrorMessage, "Could not find SavedModel") {
		t.Errorf("status %v", end.Status)
	}
	attempts := m.loader.stats.series[loadAttempts]
	for _, series := range attempts {
		if series.sum != 3 {
			t.Errorf("%v attempts, want 3: the first and two retries", series.sum)
		}
	}
	if err := m.waitAvailable([]string{"m"}); status.Code(err) != codes.Unknown {
		t.Errorf("waiting for it: %v", err)
	}
	addVersion(t, base, "2")
	s.poll()
	waitState(t, m, 2, stateAvailable)
}

func TestAFailedVersionComesBackOnlyAfterItsFolderWasGone(t *testing.T) {
	m := newTestManager(0, 0)
	base := modelFolder(t)
	if err := os.MkdirAll(filepath.Join(base, "1"), 0o755); err != nil {
		t.Fatal(err)
	}
	s := &source{manager: m, models: []*wire.ModelConfig{{Name: "m", BasePath: base}}}
	s.poll()
	waitState(t, m, 1, stateEnd)
	if err := os.WriteFile(filepath.Join(base, "1", "saved_model.pb"), []byte("model"), 0o644); err != nil {
		t.Fatal(err)
	}
	s.poll()
	time.Sleep(3 * manageInterval)
	if state := m.statuses("m")[0].State; state != stateEnd {
		t.Errorf("%s although the same number was wanted all the time", state)
	}
}
