package safetensors

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strconv"
	"unicode/utf8"
)

// parser reads the header's JSON token by token: each value has one form, so that nesting,
// repeated names and unknown keys are errors at their place.
type parser struct{ dec *json.Decoder }

// parseHeader decodes a header. check compares the offsets with the data later.
func parseHeader(raw []byte) (*Header, error) {
	if !utf8.Valid(raw) {
		return nil, problemf("header is no valid UTF-8")
	}
	p := parser{json.NewDecoder(bytes.NewReader(raw))}
	p.dec.UseNumber()
	h := &Header{raw: raw}
	seen := map[string]bool{}
	err := p.object("header", func(name string) error {
		if seen[name] {
			return problemf("header: tensor %s comes twice", name)
		}
		seen[name] = true
		if name == metadataKey {
			return p.metadata(h)
		}
		t, err := p.tensor(name)
		h.Tensors = append(h.Tensors, t)
		return err
	})
	if err != nil {
		return nil, err
	}
	if _, err := p.dec.Token(); !errors.Is(err, io.EOF) {
		return nil, problemf("header: more than one JSON value")
	}
	return h, nil
}

// object reads an object; member reads the value of a key.
func (p parser) object(what string, member func(key string) error) error {
	if err := p.delim(what, '{'); err != nil {
		return err
	}
	for p.dec.More() {
		key, err := p.text(what)
		if err != nil {
			return err
		}
		if err := member(key); err != nil {
			return err
		}
	}
	return p.delim(what, '}')
}

func (p parser) delim(what string, want json.Delim) error {
	token, err := p.dec.Token()
	if err != nil {
		return problemf("%s: %v", what, err)
	}
	if token != want {
		return problemf("%s: %v, want %v", what, token, want)
	}
	return nil
}

func (p parser) text(what string) (string, error) {
	token, err := p.dec.Token()
	if err != nil {
		return "", problemf("%s: %v", what, err)
	}
	s, ok := token.(string)
	if !ok {
		return "", problemf("%s: %v, want a string", what, token)
	}
	return s, nil
}

func (p parser) metadata(h *Header) error {
	const what = "header: " + metadataKey
	h.Metadata = map[string]string{}
	return p.object(what, func(key string) (err error) {
		if _, twice := h.Metadata[key]; twice {
			return problemf("%s: key %s comes twice", what, key)
		}
		h.Metadata[key], err = p.text(what)
		return err
	})
}

func (p parser) tensor(name string) (Info, error) {
	t, what := Info{Name: name}, "header: tensor "+name
	seen := map[string]bool{}
	var offsets []int64
	err := p.object(what, func(key string) error {
		if seen[key] {
			return problemf("%s: key %s comes twice", what, key)
		}
		seen[key] = true
		switch key {
		case "dtype":
			s, err := p.text(what + ": dtype")
			t.DType = DType(s)
			return err
		case "shape":
			dims, err := p.numbers(what + ": shape")
			t.Shape = make([]int, len(dims))
			for i, d := range dims {
				t.Shape[i] = int(d)
			}
			return err
		case "data_offsets":
			var err error
			offsets, err = p.numbers(what + ": data_offsets")
			return err
		default:
			return problemf("%s: unknown key %s", what, key)
		}
	})
	if err != nil {
		return t, err
	}
	for _, key := range []string{"dtype", "shape", "data_offsets"} {
		if !seen[key] {
			return t, problemf("%s: no %s", what, key)
		}
	}
	if len(offsets) != 2 {
		return t, problemf("%s: %d data_offsets, want 2", what, len(offsets))
	}
	t.Begin, t.End = offsets[0], offsets[1]
	return t, nil
}

// numbers reads an array of integers from 0 to 2^63-1.
func (p parser) numbers(what string) ([]int64, error) {
	if err := p.delim(what, '['); err != nil {
		return nil, err
	}
	var out []int64
	for p.dec.More() {
		token, err := p.dec.Token()
		if err != nil {
			return nil, problemf("%s: %v", what, err)
		}
		number, ok := token.(json.Number)
		n, err := strconv.ParseInt(string(number), 10, 64)
		if !ok || err != nil || n < 0 {
			return nil, problemf("%s: %v, want an integer from 0 to 2^63-1", what, token)
		}
		out = append(out, n)
	}
	return out, p.delim(what, ']')
}
