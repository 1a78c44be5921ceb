package chat

import (
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"

	"temper/internal/chat/jinja"
)

// Mismatch reports what a value should be by its schema; empty when it is.
func Mismatch(v jinja.Value, schema *jinja.Dict) string {
	if nullable, _ := schema.Get("nullable"); v == nil && nullable == true {
		return ""
	}
	kinds, _ := schema.Get("type")
	list, ok := kinds.(*jinja.List)
	if !ok {
		list = &jinja.List{Items: []jinja.Value{kinds}}
	}
	var words []string
	for _, kind := range list.Items {
		name, limited := kind.(string)
		if !limited || hasType(v, name) {
			return mismatchInside(v, schema)
		}
		words = append(words, article(name))
	}
	return strings.Join(words, " or ")
}

// article is the name of a JSON type in a sentence.
func article(kind string) string {
	switch kind {
	case "integer", "array", "object":
		return "an " + kind
	default:
		return "a " + kind
	}
}

// mismatchInside checks the choices of a text, and what lists and objects hold.
func mismatchInside(v jinja.Value, schema *jinja.Dict) string {
	if choices, ok := schema.Get("enum"); ok {
		if list, ok := choices.(*jinja.List); ok && !slices.Contains(list.Items, v) {
			var words []string
			for _, c := range list.Items {
				words = append(words, fmt.Sprintf("'%v'", c))
			}
			return "one of " + strings.Join(words, ", ")
		}
	}
	var inner []jinja.Value
	var rule jinja.Value
	switch v := v.(type) {
	case *jinja.List:
		inner = v.Items
		rule, _ = schema.Get("items")
	case *jinja.Dict:
		for _, e := range v.Entries() {
			inner = append(inner, e.Value)
		}
		rule, _ = schema.Get("additionalProperties")
	}
	items, ok := rule.(*jinja.Dict)
	if !ok {
		return ""
	}
	for _, x := range inner {
		if want := Mismatch(x, items); want != "" {
			return "of items that are each " + want
		}
	}
	return ""
}

func hasType(v jinja.Value, kind string) bool {
	switch v.(type) {
	case string:
		return kind == "string"
	case bool:
		return kind == "boolean"
	case int64, *big.Int:
		return kind == "integer" || kind == "number"
	case float64:
		return kind == "number"
	case *jinja.List:
		return kind == "array"
	case *jinja.Dict:
		return kind == "object"
	default:
		return false
	}
}

// Sample is a value, as JSON, that fits a schema; words stands in a text.
func Sample(schema *jinja.Dict, words string) string {
	if choices, ok := schema.Get("enum"); ok {
		if list, ok := choices.(*jinja.List); ok && len(list.Items) > 0 {
			return strconv.Quote(fmt.Sprint(list.Items[0]))
		}
	}
	kind, _ := schema.Get("type")
	if list, ok := kind.(*jinja.List); ok && len(list.Items) > 0 {
		kind = list.Items[0]
	}
	switch kind {
	case "integer", "number":
		return "1"
	case "boolean":
		return "true"
	case "array":
		return "[]"
	case "object":
		return "{}"
	default:
		return strconv.Quote(words)
	}
}
