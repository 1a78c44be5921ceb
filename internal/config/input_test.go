package config_test

import (
	"encoding/json"
	"testing"

	"temper/internal/config"
)

// order is an input with a field of each form.
type order struct {
	Name   string            `json:"name"`
	Raw    json.RawMessage   `json:"raw"`
	Number int               `json:"number,omitempty"`
	Seed   *uint64           `json:"seed"`
	On     bool              `json:"on"`
	Rules  []string          `json:"rules"`
	Set    map[string]string `json:"set"`
	From   *struct {
		Step int `json:"step"`
	} `json:"from"`

	wrong config.Problems
}

// TestDecodeInput names each key that is wrong and the form that is wanted, all at
// once, and takes the rest.
func TestDecodeInput(t *testing.T) {
	const known = " (known here: from, name, number, on, raw, rules, seed, set)"
	for _, tt := range []struct{ json, want string }{
		{`{"name": "a", "raw": {"x": [1]}, "number": 3, "seed": 7, "on": true, "rules": ["r"], "set": {"k": "v"}, "from": {"step": 2}}`, ""},
		{`{"seed": null, "from": null}`, ""},
		{`null`, ""},
		{`{"nam": 1, "wholly_else": 2}`, "nam: unknown key; did you mean name?" + known + "\nwholly_else: unknown key" + known},
		{`{"wrong": 1}`, "wrong: unknown key" + known},
		{`{"Number": 3}`, "Number: unknown key; did you mean number?" + known},
		{`{"number": "high", "seed": -1}`, "number: want a whole number; have \"high\"\nseed: want a whole number, 0 or more; have -1"},
		{`{"on": "yes"}`, `on: want true or false; have "yes"`},
		{`{"name": [1]}`, "name: want a text; have a list"},
		{`{"rules": "r"}`, `rules: want a list, each a text; have "r"`},
		{`{"rules": [1]}`, "rules: want a list, each a text; have a list"},
		{`{"set": "k=v"}`, `set: want an object of keys and values, such as {"seed": 2}; have "k=v"`},
		{`{"from": "best"}`, `from: want one JSON object with step; have "best"`},
		{`{"from": {"stp": 1}}`, "from.stp: unknown key; did you mean step? (known here: step)"},
		{`["a"]`, "want one JSON object with name, raw, number, seed, on, rules, set, from; have a list"},
		{`7`, "want one JSON object with name, raw, number, seed, on, rules, set, from; have 7"},
	} {
		var o order
		o.wrong = config.DecodeInput([]byte(tt.json), &o)
		if got := o.wrong.Error(); got != tt.want {
			t.Errorf("%s:\n%s\nwant\n%s", tt.json, got, tt.want)
		}
	}
}

// TestDecodeInputTakesTheRest: what is right is decoded beside what is wrong.
func TestDecodeInputTakesTheRest(t *testing.T) {
	var o order
	bad := config.DecodeInput([]byte(`{"NAME": "a", "number": "x", "seed": 7, "from": {"step": 2, "x": 1}, "more": 1}`), &o)
	if len(bad) != 4 || o.Name != "a" || o.Number != 0 || o.Seed == nil || *o.Seed != 7 || o.From == nil || o.From.Step != 2 {
		t.Errorf("decoded %+v with %d problems:\n%v", o, len(bad), bad)
	}
}
