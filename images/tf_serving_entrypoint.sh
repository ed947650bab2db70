#!/bin/bash
# Does what the stock image's script does: the server is a child of this shell (no exec), so this shell is PID 1 and a
# SIGTERM to the container reaches nobody; words after the image's name are appended, and the last of two flags wins.
tensorflow_model_server --port=8500 --rest_api_port=8501 --model_name=${MODEL_NAME} --model_base_path=${MODEL_BASE_PATH}/${MODEL_NAME} "$@"
