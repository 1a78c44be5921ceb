package chatclient

import (
	"bytes"
	"encoding/json"
	"maps"
)

// Card is what a server's list of models says of one beside its name, by the names of the list.
type Card map[string]string

// cardFields are the names that tell a model from another one, the most telling first. Time is
// none of them: for vLLM, SGLang and llama.cpp it is when they were asked.
func cardFields() []string {
	return []string{
		"weights", "root", "owned_by", "max_model_len", // the first by temper serve
		"n_params", "size", "ftype", "n_ctx", // by llama.cpp, under meta
	}
}

// Difference is a field in which the cards of two models differ. The zero value is none.
type Difference struct{ Field, Was, Now string }

// Differs compares what both cards tell, and names the first field that is another one.
func (c Card) Differs(now Card) Difference {
	for _, name := range cardFields() {
		was, told := c[name]
		if is, toldNow := now[name]; told && toldNow && was != is {
			return Difference{name, was, is}
		}
	}
	return Difference{}
}

// With is the card with what o tells in addition.
func (c Card) With(o Card) Card {
	all := Card{}
	maps.Copy(all, o)
	maps.Copy(all, c)
	return all
}

// cardOf reads an entry of a list of models. It ignores a field that is neither a text nor
// a number.
func cardOf(entry json.RawMessage) Card {
	in := json.NewDecoder(bytes.NewReader(entry))
	in.UseNumber()
	var all map[string]any
	if err := in.Decode(&all); err != nil {
		return nil
	}
	meta, _ := all["meta"].(map[string]any)
	c := Card{}
	for _, name := range cardFields() {
		for _, values := range []map[string]any{meta, all} {
			switch v := values[name].(type) {
			case string:
				if v != "" {
					c[name] = v
				}
			case json.Number:
				c[name] = v.String()
			}
		}
	}
	return c
}
