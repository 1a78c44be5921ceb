package hf

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"temper/trainer/model"
	"temper/trainer/weights/safetensors"
)

// Files of an adapter, named as PEFT names them.
const (
	adapterConfigFile  = "adapter_config.json"
	adapterWeightsFile = "adapter_model.safetensors"
)

// adapterPrefix stands before the names of tensors in PEFT's files.
const adapterPrefix = "base_model.model."

// CreateAdapter writes the adapters of a network as a new directory that PEFT, vLLM and
// others load beside the weights of base, a model's directory or name. weight is asked
// once for each adapter. The directory appears whole or not at all. One that is there and
// not empty is os.ErrExist.
func CreateAdapter(dir string, network model.Config, base string, weight func(name string) (model.Tensor, bool), dtype safetensors.DType) error {
	specs := network.Adapters()
	if len(specs) == 0 {
		return fmt.Errorf("create %s: the network has no adapters", dir)
	}
	if !dtype.IsFloat() {
		return fmt.Errorf("create %s: dtype %q, want F32, F16 or BF16", dir, dtype)
	}
	config, err := json.MarshalIndent(map[string]any{
		"peft_type": "LORA", "task_type": "CAUSAL_LM", "base_model_name_or_path": base, "inference_mode": true,
		"r": network.LoRA.Rank, "lora_alpha": network.LoRA.Alpha, "target_modules": strings.Split(network.LoRA.Targets, ","),
		"lora_dropout": 0.0, "bias": "none", "fan_in_fan_out": false, "use_rslora": false, "use_dora": false, "init_lora_weights": true,
	}, "", "  ")
	if err != nil {
		return err
	}
	for i := range specs {
		specs[i].Name = adapterPrefix + specs[i].Name
	}
	named := func(name string) (model.Tensor, bool) { return weight(strings.TrimPrefix(name, adapterPrefix)) }
	err = stage(dir, func(tmp string) error {
		return errors.Join(
			createShard(filepath.Join(tmp, adapterWeightsFile), specs, named, Layout{DType: dtype}),
			writeFile(filepath.Join(tmp, adapterConfigFile), func(w io.Writer) error {
				_, err := w.Write(append(config, '\n'))
				return err
			}))
	})
	if err != nil {
		return fmt.Errorf("create %s: %w", dir, err)
	}
	return nil
}
