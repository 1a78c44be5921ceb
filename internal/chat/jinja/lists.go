package jinja

import (
	"fmt"
	"slices"
	"strings"
)

// listFilters are the filters over sequences and mappings.
func listFilters() map[string]filterFunc {
	return map[string]filterFunc{
		"list":       func(st *state, v Value, _ call) (Value, error) { return asList(st, v) },
		"first":      func(st *state, v Value, _ call) (Value, error) { return endOf(st, v, false) },
		"last":       func(st *state, v Value, _ call) (Value, error) { return endOf(st, v, true) },
		"join":       filterJoin,
		"reverse":    filterReverse,
		"sort":       filterSort,
		"unique":     filterUnique,
		"sum":        filterSum,
		"min":        func(st *state, v Value, _ call) (Value, error) { return minOrMax(st, v, -1) },
		"max":        func(st *state, v Value, _ call) (Value, error) { return minOrMax(st, v, 1) },
		"items":      filterItems,
		"dictsort":   filterDictSort,
		"attr":       filterAttr,
		"map":        filterMap,
		"batch":      filterBatch,
		"select":     func(st *state, v Value, c call) (Value, error) { return selectItems(st, v, c, false, true) },
		"reject":     func(st *state, v Value, c call) (Value, error) { return selectItems(st, v, c, false, false) },
		"selectattr": func(st *state, v Value, c call) (Value, error) { return selectItems(st, v, c, true, true) },
		"rejectattr": func(st *state, v Value, c call) (Value, error) { return selectItems(st, v, c, true, false) },
	}
}

func asList(st *state, v Value) (*List, error) {
	items, err := iterate(st, v)
	return &List{Items: slices.Clone(items)}, err
}

func endOf(st *state, v Value, last bool) (Value, error) {
	items, err := iterate(st, v)
	switch {
	case err != nil:
		return nil, err
	case len(items) == 0:
		return undefined{"the sequence is empty"}, nil
	case last:
		return items[len(items)-1], nil
	default:
		return items[0], nil
	}
}

// attrPath reads an attribute whose name may have dots, such as "function.name".
func attrPath(v, attr Value) (Value, error) {
	name, ok := attr.(string)
	if !ok {
		return getItem(v, attr)
	}
	for _, part := range strings.Split(name, ".") {
		var err error
		if v, err = getItem(v, part); err != nil {
			return nil, err
		}
	}
	return v, nil
}

func filterJoin(st *state, v Value, c call) (Value, error) {
	a, err := c.bindArgs("d", "attribute")
	if err != nil {
		return nil, err
	}
	items, err := iterate(st, v)
	if err != nil {
		return nil, err
	}
	parts := make([]string, len(items))
	for i, item := range items {
		if attr := argOr(a[1], nil); attr != nil {
			if item, err = attrPath(item, attr); err != nil {
				return nil, err
			}
		}
		parts[i] = str(item)
		if err := st.charge(len(parts[i])); err != nil {
			return nil, err
		}
	}
	return join(st, parts, str(argOr(a[0], "")))
}

func filterReverse(st *state, v Value, _ call) (Value, error) {
	l, err := asList(st, v)
	if err != nil {
		return nil, err
	}
	slices.Reverse(l.Items)
	if _, ok := v.(string); ok {
		parts := make([]string, len(l.Items))
		for i, item := range l.Items {
			parts[i] = str(item)
		}
		return join(st, parts, "")
	}
	return l, nil
}

// sortKey returns the attribute of v by which a filter sorts, in lower case unless
// the filter is case-sensitive.
func sortKey(v, attr Value, caseSensitive bool) (Value, error) {
	if attr != nil {
		var err error
		if v, err = attrPath(v, attr); err != nil {
			return nil, err
		}
	}
	if s, ok := v.(string); ok && !caseSensitive {
		return strings.ToLower(s), nil
	}
	return v, nil
}

type keyed struct{ key, v Value }

// sorted sorts stably by key. Keys that cannot be compared are an error.
func sorted(st *state, items []keyed, reverse bool) ([]Value, error) {
	var failed error
	slices.SortStableFunc(items, func(a, b keyed) int {
		n, err := compare(st, a.key, b.key)
		if err = firstError(err, st.charge(0)); err != nil && failed == nil {
			failed = err
		}
		if reverse {
			return -n
		}
		return n
	})
	out := make([]Value, len(items))
	for i, k := range items {
		out[i] = k.v
	}
	return out, failed
}

func filterSort(st *state, v Value, c call) (Value, error) {
	a, err := c.bindArgs("reverse", "case_sensitive", "attribute")
	if err != nil {
		return nil, err
	}
	items, err := iterate(st, v)
	if err != nil {
		return nil, err
	}
	keys := make([]keyed, len(items))
	for i, item := range items {
		key, err := sortKey(item, argOr(a[2], nil), truth(argOr(a[1], false)))
		if err != nil {
			return nil, err
		}
		keys[i] = keyed{key, item}
	}
	out, err := sorted(st, keys, truth(argOr(a[0], false)))
	return &List{Items: out}, err
}

func filterDictSort(st *state, v Value, c call) (Value, error) {
	a, err := c.bindArgs("case_sensitive", "by", "reverse")
	if err != nil {
		return nil, err
	}
	d, ok := v.(*Dict)
	if !ok {
		return nil, fmt.Errorf("'%s' is no mapping", typeName(v))
	}
	keys := make([]keyed, d.Len())
	for i, e := range d.entries {
		by := e.Key
		if argOr(a[1], "key") == "value" {
			by = e.Value
		}
		key, err := sortKey(by, nil, truth(argOr(a[0], false)))
		if err != nil {
			return nil, err
		}
		keys[i] = keyed{key, &List{[]Value{e.Key, e.Value}, true}}
	}
	out, err := sorted(st, keys, truth(argOr(a[2], false)))
	return &List{Items: out}, err
}

func filterUnique(st *state, v Value, c call) (Value, error) {
	a, err := c.bindArgs("case_sensitive", "attribute")
	if err != nil {
		return nil, err
	}
	items, err := iterate(st, v)
	if err != nil {
		return nil, err
	}
	seen, out := &List{}, &List{}
	for _, item := range items {
		key, err := sortKey(item, argOr(a[1], nil), truth(argOr(a[0], false)))
		if err != nil {
			return nil, err
		}
		known, err := contains(st, seen, key)
		if err != nil {
			return nil, err
		}
		if !known {
			seen.Items, out.Items = append(seen.Items, key), append(out.Items, item)
		}
	}
	return out, nil
}

func filterSum(st *state, v Value, c call) (Value, error) {
	a, err := c.bindArgs("attribute", "start")
	if err != nil {
		return nil, err
	}
	items, err := iterate(st, v)
	if err != nil {
		return nil, err
	}
	total := argOr(a[1], int64(0))
	for _, item := range items {
		if attr := argOr(a[0], nil); attr != nil {
			if item, err = attrPath(item, attr); err != nil {
				return nil, err
			}
		}
		if total, err = arith(st, "+", total, item); err != nil {
			return nil, err
		}
	}
	return total, nil
}

func minOrMax(st *state, v Value, sign int) (Value, error) {
	items, err := iterate(st, v)
	if err != nil {
		return nil, err
	}
	if len(items) == 0 {
		return undefined{"the sequence is empty"}, nil
	}
	best := items[0]
	bestKey, _ := sortKey(best, nil, false) // no attribute, no error
	for _, item := range items[1:] {
		key, _ := sortKey(item, nil, false) // no attribute, no error
		n, err := compare(st, key, bestKey)
		if err != nil {
			return nil, err
		}
		if n*sign > 0 {
			best, bestKey = item, key
		}
	}
	return best, nil
}

func filterItems(st *state, v Value, c call) (Value, error) {
	switch d := v.(type) {
	case undefined:
		return &List{}, nil
	case *Dict:
		return dictMethod(d, "items")(st, c)
	default:
		return nil, fmt.Errorf("can only get item pairs from a mapping")
	}
}

func filterAttr(_ *state, v Value, c call) (Value, error) {
	a, err := c.bindRequired(1, "name")
	if err != nil {
		return nil, err
	}
	if attr, ok := attribute(v, str(a[0])); ok {
		return attr, nil
	}
	return undefined{fmt.Sprintf("'%s object' has no attribute '%s'", typeName(v), str(a[0]))}, nil
}

// filterMap is map(attribute=...) and map("filter", args...).
func filterMap(st *state, v Value, c call) (Value, error) {
	items, err := iterate(st, v)
	if err != nil {
		return nil, err
	}
	out := &List{Items: make([]Value, len(items))}
	attr, byAttr := c.named["attribute"]
	if byAttr {
		def, hasDefault := c.named["default"]
		for i, item := range items {
			if out.Items[i], err = attrPath(item, attr); err != nil {
				return nil, err
			}
			if _, missing := out.Items[i].(undefined); missing && hasDefault {
				out.Items[i] = def
			}
		}
		return out, nil
	}
	if len(c.args) == 0 {
		return nil, fmt.Errorf("needs the name of a filter or attribute=")
	}
	f, ok := st.lib.filters[str(c.args[0])]
	if !ok {
		return nil, fmt.Errorf("no filter named '%s'", str(c.args[0]))
	}
	c.args = c.args[1:]
	for i, item := range items {
		if err := st.charge(0); err != nil {
			return nil, err
		}
		if out.Items[i], err = f(st, item, c); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func filterBatch(st *state, v Value, c call) (Value, error) {
	a, err := c.bindRequired(1, "linecount", "fill_with")
	if err != nil {
		return nil, err
	}
	n, err := asInt(a[0])
	if err != nil {
		return nil, err
	}
	items, err := iterate(st, v)
	if err != nil {
		return nil, err
	}
	if n < 1 || n > maxRange {
		return nil, fmt.Errorf("size of a batch must be 1 to %d", maxRange)
	}
	out := &List{}
	for chunk := range slices.Chunk(items, int(n)) {
		row := slices.Clone(chunk)
		for fill := argOr(a[1], nil); fill != nil && len(row) < int(n); {
			row = append(row, fill)
		}
		out.Items = append(out.Items, &List{Items: row})
	}
	return out, st.charge(16*len(items) + 16*int(n))
}

// selectItems is select, reject, selectattr and rejectattr. Without a test, an item
// counts by its truth.
func selectItems(st *state, v Value, c call, byAttr, keep bool) (Value, error) {
	items, err := iterate(st, v)
	if err != nil {
		return nil, err
	}
	var attr Value
	if byAttr {
		if len(c.args) == 0 {
			return nil, fmt.Errorf("needs the name of an attribute")
		}
		attr, c.args = c.args[0], c.args[1:]
	}
	name := ""
	if len(c.args) > 0 {
		name, c.args = str(c.args[0]), c.args[1:]
	}
	out := &List{}
	for _, item := range items {
		v := item
		if byAttr {
			if v, err = attrPath(item, attr); err != nil {
				return nil, err
			}
		}
		ok := truth(v)
		if name != "" {
			result, err := st.test(name, v, c)
			if err != nil {
				return nil, err
			}
			ok = truth(result)
		}
		if ok == keep {
			out.Items = append(out.Items, item)
		}
		if err := st.charge(8); err != nil {
			return nil, err
		}
	}
	return out, nil
}
