package main

import (
	"errors"
	"io/fs"
	"log"
	"os"
	"path"
	"regexp"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	"tf-serving-simulator/internal/wire"
)

// invalid is the error that most rules end in.
func invalid(format string, args ...any) error {
	return status.Errorf(codes.InvalidArgument, format, args...)
}

// readTextProto fills a message from a text-format file. As with the real server the error names the file and
// nothing else; the log says where the mistake is.
func readTextProto(file string, message proto.Message) error {
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return status.Errorf(codes.NotFound, "%s; No such file or directory", file)
	}
	if err != nil {
		return status.Errorf(codes.Unknown, "%s", err)
	}
	if len(text) == 0 { // mapping an empty file into memory fails
		return invalid("%s; Invalid argument", file)
	}
	if err := prototext.Unmarshal(text, message); err != nil {
		log.Printf("E %s: %s", file, err)
		return invalid("Invalid protobuf file: '%s'", file)
	}
	return nil
}

// checkOptions holds the rules across flags, in the order in which the real server tries them.
func checkOptions(o *options) error {
	switch {
	case o.port == 0 && o.grpcSocketPath == "":
		return invalid("At least one of server_options.grpc_port or server_options.grpc_socket_path must be set.")
	case o.alts && o.sslConfigFile != "":
		return invalid("Either use_alts_credentials must be false or ssl_config_file must be empty.")
	case o.modelBasePath == "" && o.modelConfigFile == "":
		return invalid("Both server_options.model_base_path and server_options.model_config_file are empty!")
	case o.platformConfigFile == "" && o.batchingFile != "" && !o.enableBatching:
		return invalid("server_options.batching_parameters_file is set without setting" +
			" server_options.enable_batching to true.")
	case o.platformConfigFile == "" && o.sessionParallelism > 0 && o.intraParallelism > 0 && o.interParallelism > 0:
		return invalid("Either configure server_options.tensorflow_session_parallelism or" +
			" (server_options.tensorflow_intra_op_parallelism, server_options.tensorflow_inter_op_parallelism)" +
			" separately. You cannot configure all.")
	case o.restThreads < 1:
		return invalid("--rest_api_num_threads=%d: a thread pool needs a thread", o.restThreads)
	}
	return checkIgnored(o)
}

// bypassedByPlatformConfig are the flags that do nothing once --platform_config_file is set.
var bypassedByPlatformConfig = []string{
	"enable_batching", "batching_parameters_file", "enable_per_model_batching_parameters",
	"tensorflow_session_config_file", "per_process_gpu_memory_fraction", "tensorflow_session_parallelism",
	"tensorflow_intra_op_parallelism", "tensorflow_inter_op_parallelism", "saved_model_tags",
	"enable_model_warmup", "num_request_iterations_for_warmup",
}

// checkIgnored refuses combinations in which the real server drops a flag without a word. (One is let through:
// --model_name and --model_base_path beside --model_config_file, because the stock image's script always passes them.)
func checkIgnored(o *options) error {
	if o.platformConfigFile != "" {
		for _, name := range bypassedByPlatformConfig {
			if o.given[name] {
				return ignored("--%s has no effect together with --platform_config_file", name)
			}
		}
	}
	switch {
	case o.perModelBatching && !o.enableBatching:
		return ignored("--enable_per_model_batching_parameters has no effect without --enable_batching")
	case o.modelConfigPollSeconds > 0 && o.modelConfigFile == "":
		return ignored("--model_config_file_poll_wait_seconds has no effect without --model_config_file")
	case o.sessionParallelism > 0 && (o.intraParallelism > 0 || o.interParallelism > 0):
		return ignored("--tensorflow_session_parallelism has no effect beside the intra or inter op flag")
	case o.monitoringFile != "" && o.restPort == 0:
		return ignored("--monitoring_config_file is read only where --rest_api_port is set")
	case o.mixedPrecision != "" && o.mixedPrecision != "bfloat16":
		return ignored("--mixed_precision=%s: only bfloat16 is known", o.mixedPrecision)
	case o.alts || o.preferTflite || o.threadPoolFactoryFile != "" || o.skipInitializeTPU:
		return refused("--use_alts_credentials, --prefer_tflite_model, --thread_pool_factory_config_file and" +
			" --skip_initialize_tpu are not simulated")
	}
	for _, argument := range strings.Split(o.grpcChannelArguments, ",") {
		if o.grpcChannelArguments != "" && !strings.Contains(argument, "=") {
			return refused("--grpc_channel_arguments: %q has no '='; the real server reads past the end of it", argument)
		}
	}
	return nil
}

// sessionSettings are what the batching and session files and flags amount to for every model of the process.
type sessionSettings struct {
	batching     *wire.BatchingParameters // nil: requests are not batched
	perModel     bool                     // each version directory brings its own parameters, or is not batched
	tags         []string
	warmup       bool
	warmupRepeat int
}

func readSessionSettings(o *options) (sessionSettings, error) {
	s := sessionSettings{
		perModel: o.perModelBatching, tags: strings.Split(o.savedModelTags, ","),
		warmup: o.enableWarmup, warmupRepeat: max(1, int(o.warmupIterations)),
	}
	if o.platformConfigFile != "" {
		return readPlatformConfig(o.platformConfigFile)
	}
	if o.enableBatching {
		s.batching = &wire.BatchingParameters{}
		if o.batchingFile != "" {
			if err := readTextProto(o.batchingFile, s.batching); err != nil {
				return s, err
			}
			own := &wire.BatchingParameters{NumBatchThreads: s.batching.NumBatchThreads, ThreadPoolName: s.batching.ThreadPoolName}
			if s.perModel && !proto.Equal(own, s.batching) {
				return s, ignored("%s: with --enable_per_model_batching_parameters only num_batch_threads and"+
					" thread_pool_name of it count", o.batchingFile)
			}
		}
	}
	if o.sessionConfigFile != "" {
		session := &wire.ConfigProto{}
		if err := readTextProto(o.sessionConfigFile, session); err != nil {
			return s, err
		}
		if session.GetGpuOptions().GetPerProcessGpuMemoryFraction() != 0 {
			return s, ignored("%s: per_process_gpu_memory_fraction is overwritten by the flag of that name", o.sessionConfigFile)
		}
		if session.IntraOpParallelismThreads != 0 || session.InterOpParallelismThreads != 0 {
			return s, ignored("%s: intra/inter_op_parallelism_threads are overwritten by the tensorflow_*_parallelism flags",
				o.sessionConfigFile)
		}
	}
	return s, nil
}

func readPlatformConfig(file string) (sessionSettings, error) {
	platforms := &wire.PlatformConfigMap{}
	if err := readTextProto(file, platforms); err != nil {
		return sessionSettings{}, err
	}
	platform, found := platforms.PlatformConfigs["tensorflow"]
	if !found {
		return sessionSettings{}, status.Error(codes.FailedPrecondition, "PlatformConfigMap has no entry for platform tensorflow")
	}
	adapter := &wire.SavedModelBundleSourceAdapterConfig{}
	if err := platform.SourceAdapterConfig.UnmarshalTo(adapter); err != nil {
		return sessionSettings{}, invalid("platform tensorflow: source_adapter_config: %s", err)
	}
	bundle := adapter.GetLegacyConfig()
	tags := bundle.GetSavedModelTags()
	if len(tags) == 0 {
		tags = []string{"serve"}
	}
	return sessionSettings{
		batching: bundle.GetBatchingParameters(), perModel: bundle.GetEnablePerModelBatchingParams(), tags: tags,
		warmup:       bundle.GetEnableModelWarmup(),
		warmupRepeat: max(1, int(bundle.GetModelWarmupOptions().GetNumRequestIterations().GetValue())),
	}, nil
}

// readModelServerConfig gives the first configuration: a file, or the one model named by flags.
func readModelServerConfig(o *options) (*wire.ModelServerConfig, error) {
	config := &wire.ModelServerConfig{}
	if o.modelConfigFile != "" {
		if o.given["model_name"] || o.given["model_base_path"] {
			log.Printf("W --model_name and --model_base_path have no effect beside --model_config_file")
		}
		return config, readTextProto(o.modelConfigFile, config)
	}
	config.Config = &wire.ModelServerConfig_ModelConfigList{ModelConfigList: &wire.ModelConfigList{
		Config: []*wire.ModelConfig{{Name: o.modelName, BasePath: o.modelBasePath, ModelPlatform: "tensorflow"}},
	}}
	return config, nil
}

var uri = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.-]*://`)

// checkModelList holds the rules of a list of models.
func checkModelList(list *wire.ModelConfigList) error {
	seen := map[string]bool{}
	for _, model := range list.GetConfig() {
		if seen[model.Name] {
			return invalid("Illegal to list model %s multiple times in config list", model.Name)
		}
		seen[model.Name] = true
	}
	for _, model := range list.GetConfig() {
		if !path.IsAbs(model.BasePath) && !uri.MatchString(model.BasePath) {
			return invalid("Expected model %s to have an absolute path or URI; got base_path()=%s", model.Name, model.BasePath)
		}
	}
	for _, model := range list.GetConfig() {
		if err := checkPlatform(model); err != nil {
			return err
		}
	}
	return nil
}

func checkPlatform(model *wire.ModelConfig) error {
	deprecated := model.GetModelType() //nolint:staticcheck // the real server still takes it
	switch {
	case deprecated != wire.ModelType_MODEL_TYPE_UNSPECIFIED && model.ModelPlatform != "":
		return invalid("Illegal setting both ModelServerConfig::model_type (deprecated) and"+
			" ModelServerConfig::model_platform, model name is %s", model.Name)
	case deprecated == wire.ModelType_OTHER:
		return invalid("ModelServerConfig::model_type choice %d not supported.", deprecated)
	case deprecated == wire.ModelType_TENSORFLOW:
		return nil
	case model.ModelPlatform == "":
		return invalid("Illegal setting neither ModelServerConfig::model_type (deprecated) nor"+
			" ModelServerConfig::model_platform, model name is %s", model.Name)
	case model.ModelPlatform != "tensorflow":
		return invalid("Model %s requests unsupported platform %s", model.Name, model.ModelPlatform)
	}
	return nil
}
