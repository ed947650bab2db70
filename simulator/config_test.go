package main

import (
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/protobuf/proto"

	"tf-serving-simulator/internal/wire"
)

func TestTextFilesAreReadByTheRealRules(t *testing.T) {
	models := func() proto.Message { return &wire.ModelServerConfig{} }
	batching := func() proto.Message { return &wire.BatchingParameters{} }
	const model = `name: "m" base_path: "/m" model_platform: "tensorflow"`
	for text, test := range map[string]struct {
		into     func() proto.Message
		accepted bool
	}{
		`model_config_list { config { ` + model + ` } }`:                                                       {models, true},
		`model_config_list: { config: { ` + model + `, model_version_policy: { all: {} } }, }`:                 {models, true},
		`model_config_list { config { ` + model + ` model_version_policy { specific { versions: [1,2] } } } }`: {models, true},
		`model_config_list { config { ` + model + ` version_labels { key: "a" value: 1 } } } # end`:            {models, true},
		"# nothing\n":          {models, true},
		`model_config_list {}`: {models, true},
		``:                     {models, false},
		`model_config_list { config { ` + model + ` model_version_policy: LATEST_VERSION } }`:                       {models, false},
		`model_config_list { config { ` + model + ` version_policy { all {} } } }`:                                  {models, false},
		`model_config_list { config { ` + model + ` model_version_policy { latest { num_versions: 2 } all {} } } }`: {models, false},
		`model_config_list { config { ` + model + ` version_labels { key: "a" value: "1" } } }`:                     {models, false},
		`model_config_list { config { ` + model + ` version_labels { "a": 1 } } }`:                                  {models, false},
		`model_config_list { config { ` + model + ` name: "n" } }`:                                                  {models, false},
		`model_config_list { config { ` + model + ` optimization { gpu { } } } }`:                                   {models, false},
		`model_config_list { } model_config_list { }`:                                                               {models, false},
		`config { ` + model + ` }`:                                                           {models, false},
		"\ufeffmodel_config_list {}":                                                         {models, false},
		"model_config_list { config { name: \u201cm\u201d } }":                               {models, false},
		`{"model_config_list": {}}`:                                                          {models, false},
		`max_batch_size { value: 32 }`:                                                       {batching, true},
		`allowed_batch_sizes: [1, 8, 32] max_batch_size: {value: 32};`:                       {batching, true},
		`allowed_batch_sizes: 1 allowed_batch_sizes: 32`:                                     {batching, true},
		`thread_pool_name { value: "p" } pad_variable_length_inputs: true`:                   {batching, true},
		`enable_large_batch_splitting { value: true } max_execution_batch_size { value: 8 }`: {batching, true},
		`max_batch_size: 32`:                                                                 {batching, false},
		`allowed_batch_sizes { value: 32 }`:                                                  {batching, false},
		`pad_variable_length_inputs { value: true }`:                                         {batching, false},
		`enable_large_batch_splitting: true`:                                                 {batching, false},
		`low_priority_max_batch_size { value: 8 }`:                                           {batching, false},
		`max_batch_size { value: 8 } max_batch_size { value: 8 }`:                            {batching, false},
	} {
		file := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := readTextProto(file, test.into()); (err == nil) != test.accepted {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestListsOfModels(t *testing.T) {
	good := func() *wire.ModelConfig {
		return &wire.ModelConfig{Name: "m", BasePath: "/m", ModelPlatform: "tensorflow"}
	}
	changed := func(change func(*wire.ModelConfig)) []*wire.ModelConfig {
		model := good()
		change(model)
		return []*wire.ModelConfig{model}
	}
	for name, test := range map[string]struct {
		models   []*wire.ModelConfig
		accepted bool
	}{
		"one":             {[]*wire.ModelConfig{good()}, true},
		"none":            {nil, true},
		"a URI":           {changed(func(m *wire.ModelConfig) { m.BasePath = "gs://bucket/m" }), true},
		"the same name":   {[]*wire.ModelConfig{good(), good()}, false},
		"a relative path": {changed(func(m *wire.ModelConfig) { m.BasePath = "m" }), false},
		"no platform":     {changed(func(m *wire.ModelConfig) { m.ModelPlatform = "" }), false},
		"other platform":  {changed(func(m *wire.ModelConfig) { m.ModelPlatform = "pytorch" }), false},
		"type and platform": {changed(func(m *wire.ModelConfig) {
			m.ModelType = wire.ModelType_TENSORFLOW //nolint:staticcheck // deprecated there too
		}), false},
	} {
		if err := checkModelList(&wire.ModelConfigList{Config: test.models}); (err == nil) != test.accepted {
			t.Errorf("%s: %v", name, err)
		}
	}
}
