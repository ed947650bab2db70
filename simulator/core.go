package main

import (
	"log"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"tf-serving-simulator/internal/wire"
)

// core takes configurations and answers what may be asked of models.
type core struct {
	options *options
	cpus    int
	manager *manager
	labels  *labelMap

	configMu sync.Mutex // held for a whole reload, however long its models take
	config   *wire.ModelServerConfig
	source   *source
}

func newCore(o *options, l *loader, cpus int) *core {
	return &core{options: o, cpus: cpus, manager: newManager(l, o, 4*cpus), labels: &labelMap{}, config: &wire.ModelServerConfig{}}
}

// reload takes a new configuration: it replaces the list of models, and returns when every new model serves.
func (c *core) reload(next *wire.ModelServerConfig) error {
	c.configMu.Lock()
	defer c.configMu.Unlock()
	first := c.config.GetConfig() == nil
	if !first && next.GetModelConfigList() == nil {
		return status.Error(codes.FailedPrecondition, "Cannot transition to requested config."+
			" It is only legal to transition from one ModelConfigList to another.")
	}
	if next.GetConfig() == nil {
		log.Printf("I Taking no action for empty config.")
		return nil
	}
	if next.GetCustomModelConfig() != nil {
		return &refusal{134, "custom_model_config: no loader for it in this server (the real one aborts)"}
	}
	models := next.GetModelConfigList().GetConfig()
	if err := checkModelList(next.GetModelConfigList()); err != nil {
		return err
	}
	c.config = proto.Clone(next).(*wire.ModelServerConfig)
	if err := c.labels.update(models, c.options.labelsForUnavailable, c.manager.available); err != nil {
		return err
	}
	log.Printf("I Adding/updating models.")
	var before []*wire.ModelConfig
	initial := c.source == nil
	if initial {
		c.source = &source{manager: c.manager, models: models}
		c.source.start(c.options.pollSeconds)
	} else {
		before = c.source.update(models)
	}
	var added []string
	for _, model := range models {
		if !slices.ContainsFunc(before, func(old *wire.ModelConfig) bool { return old.Name == model.Name }) {
			added = append(added, model.Name)
		}
	}
	if err := c.manager.waitAvailable(added); err != nil {
		return err
	}
	if initial {
		c.manager.endInitialLoad(int(c.options.loadThreads))
	}
	log.Printf("I Finished adding/updating models")
	for _, model := range models {
		if model.LoggingConfig != nil {
			return invalid("No request-logger-creator provided.")
		}
	}
	return nil
}

// pollConfigFile re-reads the file for ever; whatever goes wrong is only logged.
func (c *core) pollConfigFile(file string, period time.Duration) {
	for {
		time.Sleep(period)
		next := &wire.ModelServerConfig{}
		if err := readTextProto(file, next); err != nil {
			log.Printf("E Failed to read ModelServerConfig file: %s", describe(err))
		} else if err := c.reload(next); err != nil {
			log.Printf("E PollFilesystemAndReloadConfig failed to ReloadConfig: %s", describe(err))
		}
	}
}

// acquire finds the version that a request names by number, by label, or not at all.
func (c *core) acquire(spec *wire.ModelSpec) (*servable, error) {
	if spec.GetName() == "" {
		return nil, invalid("ModelSpec has no name specified.")
	}
	switch choice := spec.GetVersionChoice().(type) {
	case *wire.ModelSpec_Version:
		version := choice.Version.GetValue()
		return c.manager.acquire(spec.Name, &version)
	case *wire.ModelSpec_VersionLabel:
		version, err := c.labels.version(spec.Name, choice.VersionLabel)
		if err != nil {
			return nil, err
		}
		return c.manager.acquire(spec.Name, &version)
	}
	return c.manager.acquire(spec.Name, nil)
}

// modelStatus looks at a version number, never at a label.
func (c *core) modelStatus(request *wire.GetModelStatusRequest) (*wire.GetModelStatusResponse, error) {
	spec := request.GetModelSpec()
	if spec == nil {
		return nil, invalid("Missing ModelSpec")
	}
	all := c.manager.statuses(spec.Name)
	if spec.GetVersion() == nil {
		if len(all) == 0 {
			return nil, status.Errorf(codes.NotFound, "Could not find any versions of model %s", spec.Name)
		}
		return &wire.GetModelStatusResponse{ModelVersionStatus: all}, nil
	}
	version := spec.GetVersion().GetValue()
	for _, one := range all {
		if one.Version == version {
			return &wire.GetModelStatusResponse{ModelVersionStatus: []*wire.ModelVersionStatus{one}}, nil
		}
	}
	return nil, status.Errorf(codes.NotFound, "Could not find version %d of model %s", version, spec.Name)
}
