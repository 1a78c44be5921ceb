package hf

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"temper/trainer/weights/safetensors"
)

// TorchName returns the type in torch's words, as config.json has it.
func TorchName(d safetensors.DType) string {
	switch d {
	case safetensors.F32:
		return "float32"
	case safetensors.F16:
		return "float16"
	case safetensors.BF16:
		return "bfloat16"
	default:
		return strings.ToLower(string(d))
	}
}

// WithDType returns a config.json that names another type of the weights, if it
// names one. Every other byte stays.
func WithDType(config []byte, d safetensors.DType) ([]byte, error) {
	name, err := json.Marshal(TorchName(d))
	if err != nil {
		return nil, err
	}
	for _, key := range []string{"dtype", "torch_dtype"} {
		edited, found, err := replaced(config, key, name)
		if err != nil {
			return nil, err
		}
		if found {
			config = edited
		}
	}
	return config, nil
}

// indented encodes v for readers: the tokens of a chat are full of < and >, which
// json.Marshal would escape.
func indented(v any) ([]byte, error) {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	err := enc.Encode(v)
	return out.Bytes(), err
}

// member is a key of a JSON object with its value.
type member struct {
	key   string
	value any
}

// withMembers sets members of a JSON object: in their place where they are
// there, else at the end. Every other byte stays.
func withMembers(object []byte, members []member) ([]byte, error) {
	for _, m := range members {
		value, err := indented(m.value)
		if err != nil {
			return nil, err
		}
		value = bytes.TrimSuffix(value, []byte("\n"))
		edited, found, err := replaced(object, m.key, value)
		if err != nil {
			return nil, err
		}
		if !found {
			if edited, err = appended(object, m.key, value); err != nil {
				return nil, err
			}
		}
		object = edited
	}
	return object, nil
}

// replaced sets another value for a key of a JSON object, if the key exists.
func replaced(object []byte, key string, value []byte) (_ []byte, found bool, err error) {
	dec := json.NewDecoder(bytes.NewReader(object))
	if _, err := dec.Token(); err != nil {
		return nil, false, err
	}
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return nil, false, err
		}
		var old json.RawMessage
		if err := dec.Decode(&old); err != nil {
			return nil, false, err
		}
		if name == key {
			end := int(dec.InputOffset())
			return slices.Concat(object[:end-len(old)], value, object[end:]), true, nil
		}
	}
	return object, false, nil
}

// appended puts a key at the end of a JSON object.
func appended(object []byte, key string, value []byte) ([]byte, error) {
	name, err := json.Marshal(key)
	if err != nil {
		return nil, err
	}
	end := bytes.LastIndexByte(object, '}')
	if end < 0 {
		return nil, errors.New("want a JSON object")
	}
	before := bytes.TrimRight(object[:end], " \t\r\n")
	comma := ","
	if bytes.HasSuffix(before, []byte("{")) {
		comma = ""
	}
	return slices.Concat(before, []byte(comma+"\n  "), name, []byte(": "), value, []byte("\n"), object[end:]), nil
}
