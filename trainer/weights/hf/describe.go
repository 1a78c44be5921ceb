package hf

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"temper/trainer/model"
	"temper/trainer/weights/safetensors"
)

// Generation is how a model has been trained to talk. Without it in the files
// another program guesses: it splits text as the stock tokenizer of the
// architecture does, never stops, and prompts in a form that the model has not seen.
type Generation struct {
	// Stop are the tokens that end a turn, by id and as text; the first is the
	// end-of-text token of the files. Pad fills unused places.
	Stop []Token
	Pad  Token
	// Template is the chat template in Jinja.
	Template string
	// Temperature of the rollouts, which draw from the whole distribution.
	Temperature float64
}

// Token is an entry of the vocabulary.
type Token struct {
	ID   int32
	Text string
}

// Describe returns the files beside weights of the type, by name, so that the
// directory is complete for other programs. files are those that the model came
// with: they stay unchanged except for fields that contradict g.
func Describe(network model.Config, d safetensors.DType, files map[string][]byte, g Generation) (map[string][]byte, error) {
	if len(g.Stop) == 0 || g.Template == "" {
		return nil, errors.New("describe a model: no token ends a turn, or there is no chat template")
	}
	out := maps.Clone(files)
	if out == nil {
		out = map[string][]byte{}
	}
	var err error
	if out[ConfigFile], err = describedConfig(network, d, g); err != nil {
		return nil, err
	}
	if out[TokenizerConfigFile], err = g.tokenizerConfig(network, files[TokenizerConfigFile]); err != nil {
		return nil, fmt.Errorf("%s: %w", TokenizerConfigFile, err)
	}
	out[TemplateFile] = []byte(g.Template)
	if out[GenerationFile], err = g.generationConfig(); err != nil {
		return nil, err
	}
	return out, nil
}

// describedConfig is config.json with the ids that programs look for there.
func describedConfig(network model.Config, d safetensors.DType, g Generation) ([]byte, error) {
	config, err := model.EncodeConfig(network, TorchName(d))
	if err != nil {
		return nil, err
	}
	config, err = withMembers(config, []member{{"bos_token_id", nil}, {"eos_token_id", g.Stop[0].ID}, {"pad_token_id", g.Pad.ID}})
	if err != nil {
		return nil, named(ConfigFile, err)
	}
	return config, nil
}

// generationConfig asks for samples as rollouts draw them, until a turn ends.
// 0 for top_k switches off the default of 50.
func (g Generation) generationConfig() ([]byte, error) {
	eos := make([]int32, len(g.Stop))
	for i, token := range g.Stop {
		eos[i] = token.ID
	}
	return indented(struct {
		BOS         *int32  `json:"bos_token_id"`
		EOS         []int32 `json:"eos_token_id"`
		Pad         int32   `json:"pad_token_id"`
		DoSample    bool    `json:"do_sample"`
		Temperature float64 `json:"temperature"`
		TopK        int     `json:"top_k"`
		TopP        float64 `json:"top_p"`
	}{EOS: eos, Pad: g.Pad.ID, DoSample: true, Temperature: g.Temperature, TopP: 1})
}

// tokenizerConfig is the file that the model came with, with the end of a turn
// and the template of the training, or a new one. Its class takes the splitting
// of text from tokenizer.json, and not from the name of the architecture.
func (g Generation) tokenizerConfig(network model.Config, file []byte) ([]byte, error) {
	if file == nil {
		return indented(struct {
			Class        string  `json:"tokenizer_class"`
			MaxLength    int     `json:"model_max_length"`
			AddBOS       bool    `json:"add_bos_token"`
			AddPrefix    bool    `json:"add_prefix_space"`
			CleanUp      bool    `json:"clean_up_tokenization_spaces"`
			BOS          *string `json:"bos_token"`
			EOS          string  `json:"eos_token"`
			Pad          string  `json:"pad_token"`
			Unknown      *string `json:"unk_token"`
			ChatTemplate string  `json:"chat_template"`
		}{Class: "PreTrainedTokenizerFast", MaxLength: network.MaxPositionEmbeddings, EOS: g.Stop[0].Text, Pad: g.Pad.Text, ChatTemplate: g.Template})
	}
	var has struct {
		EOS      json.RawMessage `json:"eos_token"`
		Template json.RawMessage `json:"chat_template"`
	}
	if err := json.Unmarshal(file, &has); err != nil {
		return nil, err
	}
	var changes []member
	if !slices.ContainsFunc(g.Stop, func(t Token) bool { return t.Text == tokenText(has.EOS) }) {
		changes = append(changes, member{"eos_token", g.Stop[0].Text})
	}
	if has.Template != nil && tokenText(has.Template) != g.Template {
		changes = append(changes, member{"chat_template", g.Template})
	}
	return withMembers(file, changes)
}
