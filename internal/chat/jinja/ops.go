package jinja

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/big"
	"strings"
)

// arith applies a binary operator of Python.
func arith(st *state, op string, a, b Value) (Value, error) {
	if op == "~" {
		s, t := str(a), str(b)
		return s + t, st.charge(len(s) + len(t))
	}
	for _, v := range []Value{a, b} {
		if u, ok := v.(undefined); ok {
			return nil, u.err()
		}
	}
	if isNumber(a) && isNumber(b) {
		return arithNumbers(op, a, b)
	}
	switch op {
	case "+":
		if v, err := concat(st, a, b); v != nil || err != nil {
			return v, err
		}
	case "*":
		if _, ok := b.(string); ok {
			a, b = b, a
		}
		s, isText := a.(string)
		if n, isInt := toInt(b); isText && isInt {
			return repeat(st, s, n)
		}
	case "%":
		if s, ok := a.(string); ok {
			return formatPercent(st, s, b)
		}
	}
	return nil, fmt.Errorf("unsupported operand types for %s: '%s' and '%s'", op, typeName(a), typeName(b))
}

// concat joins two strings or two lists and returns nil for other pairs.
func concat(st *state, a, b Value) (Value, error) {
	switch x := a.(type) {
	case string:
		if y, ok := b.(string); ok {
			return x + y, st.charge(len(x) + len(y))
		}
	case *List:
		if y, ok := b.(*List); ok && x.tuple == y.tuple {
			items := append(append([]Value{}, x.Items...), y.Items...)
			return &List{items, x.tuple}, st.charge(16 * len(items))
		}
	}
	return nil, nil
}

func repeat(st *state, s string, n int64) (Value, error) {
	n = max(n, 0)
	if len(s) > 0 && n > MaxOutput/int64(len(s)) {
		return nil, fmt.Errorf("%w of %d bytes of output", ErrBudget, MaxOutput)
	}
	if err := st.charge(len(s) * int(n)); err != nil {
		return nil, err
	}
	return strings.Repeat(s, int(n)), nil
}

func arithNumbers(op string, a, b Value) (Value, error) {
	x, xInt := toInt(a)
	y, yInt := toInt(b)
	if xInt && yInt && op != "/" {
		return arithInts(op, x, y)
	}
	f, g := toFloat(a), toFloat(b)
	switch op {
	case "+":
		return f + g, nil
	case "-":
		return f - g, nil
	case "*":
		return f * g, nil
	case "**":
		return math.Pow(f, g), nil
	}
	if g == 0 {
		return nil, fmt.Errorf("division by zero")
	}
	switch op {
	case "/":
		return f / g, nil
	case "//":
		return math.Floor(f / g), nil
	default:
		m := math.Mod(f, g)
		if m != 0 && (m < 0) != (g < 0) {
			m += g
		}
		return m, nil
	}
}

// arithInts computes with big integers and refuses results that do not fit 64 bits.
func arithInts(op string, a, b int64) (Value, error) {
	x, y, out := big.NewInt(a), big.NewInt(b), new(big.Int)
	switch op {
	case "+":
		out.Add(x, y)
	case "-":
		out.Sub(x, y)
	case "*":
		out.Mul(x, y)
	case "**":
		if b < 0 {
			return math.Pow(float64(a), float64(b)), nil
		}
		if b > 64 && a != 0 && a != 1 && a != -1 {
			return nil, fmt.Errorf("%d**%d does not fit 64 bits", a, b)
		}
		if b > 64 {
			y.SetInt64(b%2 + 2) // the power of 0, 1 or -1 depends on the parity alone
		}
		out.Exp(x, y, nil)
	default:
		if b == 0 {
			return nil, fmt.Errorf("integer division or modulo by zero")
		}
		mod := new(big.Int)
		out.DivMod(x, y, mod) // Euclidean: the remainder is not negative
		if mod.Sign() != 0 && b < 0 {
			mod.Add(mod, y)
			out.Sub(out, big.NewInt(1))
		}
		if op == "%" {
			out = mod
		}
	}
	if !out.IsInt64() {
		return nil, fmt.Errorf("%d %s %d does not fit 64 bits", a, op, b)
	}
	return out.Int64(), nil
}

// equal is Python's ==.
func equal(st *state, a, b Value) (bool, error) {
	if err := errors.Join(st.charge(16), st.deeper()); err != nil {
		return false, err
	}
	defer st.shallower()
	switch x := a.(type) {
	case string:
		y, ok := b.(string)
		return ok && x == y, st.charge(len(x))
	case *List:
		y, ok := b.(*List)
		if !ok || x.tuple != y.tuple || len(x.Items) != len(y.Items) {
			return false, nil
		}
		return equalLists(st, x.Items, y.Items)
	case *Dict:
		y, ok := b.(*Dict)
		if !ok || x.Len() != y.Len() {
			return false, nil
		}
		return equalDicts(st, x, y)
	case undefined:
		_, ok := b.(undefined)
		return ok, nil
	case *big.Int:
		y, ok := b.(*big.Int)
		return ok && x.Cmp(y) == 0, nil
	}
	if isNumber(a) && isNumber(b) {
		n, err := compare(st, a, b)
		return n == 0, err
	}
	return a == b, nil
}

func equalLists(st *state, a, b []Value) (bool, error) {
	for i := range a {
		if same, err := equal(st, a[i], b[i]); err != nil || !same {
			return false, err
		}
	}
	return true, nil
}

func equalDicts(st *state, a, b *Dict) (bool, error) {
	for _, e := range a.entries {
		v, ok := b.lookUp(e.Key)
		if !ok {
			return false, nil
		}
		if same, err := equal(st, e.Value, v); err != nil || !same {
			return false, err
		}
	}
	return true, nil
}

// compare orders numbers, strings and lists. Other pairs are an error, as in Python.
func compare(st *state, a, b Value) (int, error) {
	if err := st.deeper(); err != nil {
		return 0, err
	}
	defer st.shallower()
	x, xInt := toInt(a)
	y, yInt := toInt(b)
	if xInt && yInt {
		return cmp.Compare(x, y), nil
	}
	if isNumber(a) && isNumber(b) {
		return cmp.Compare(toFloat(a), toFloat(b)), nil
	}
	switch x := a.(type) {
	case string:
		if y, ok := b.(string); ok {
			return cmp.Compare(x, y), st.charge(len(x))
		}
	case undefined:
		return 0, x.err()
	case *List:
		y, ok := b.(*List)
		if !ok || x.tuple != y.tuple {
			break
		}
		for i := range min(len(x.Items), len(y.Items)) {
			if n, err := compare(st, x.Items[i], y.Items[i]); n != 0 || err != nil {
				return n, err
			}
		}
		return cmp.Compare(len(x.Items), len(y.Items)), nil
	}
	if u, ok := b.(undefined); ok {
		return 0, u.err()
	}
	return 0, fmt.Errorf("'%s' and '%s' have no order", typeName(a), typeName(b))
}

// contains is Python's `item in v`.
func contains(st *state, v, item Value) (bool, error) {
	switch x := v.(type) {
	case string:
		s, ok := item.(string)
		if !ok {
			return false, fmt.Errorf("'in <string>' requires string as left operand, not %s", typeName(item))
		}
		return strings.Contains(x, s), st.charge(len(x))
	case *Dict:
		_, ok := x.lookUp(item)
		return ok, nil
	case *List:
		for _, y := range x.Items {
			if same, err := equal(st, y, item); same || err != nil {
				return same, err
			}
		}
		return false, nil
	case undefined:
		return false, nil
	default:
		return false, fmt.Errorf("argument of type '%s' is not iterable", typeName(v))
	}
}

// getItem is v[key] in Jinja2: a missing item is undefined.
func getItem(v, key Value) (Value, error) {
	missing := undefined{fmt.Sprintf("'%s object' has no item %s", typeName(v), repr(key))}
	switch x := v.(type) {
	case undefined:
		return nil, x.err()
	case *Dict:
		if item, ok := x.lookUp(key); ok {
			return item, nil
		}
	case *List:
		if n, ok := toInt(key); ok {
			if i := fromEnd(n, len(x.Items)); i >= 0 {
				return x.Items[i], nil
			}
			return missing, nil
		}
	case string:
		if n, ok := toInt(key); ok {
			runes := []rune(x)
			if i := fromEnd(n, len(runes)); i >= 0 {
				return string(runes[i]), nil
			}
			return missing, nil
		}
	}
	if name, ok := key.(string); ok {
		if attr, ok := attribute(v, name); ok {
			return attr, nil
		}
	}
	return missing, nil
}

// fromEnd turns a Python index, which may count from the end, into one of n items;
// -1 when it is out of range.
func fromEnd(i int64, n int) int {
	if i < 0 {
		i += int64(n)
	}
	if i < 0 || i >= int64(n) {
		return -1
	}
	return int(i)
}

// getAttr is v.name in Jinja2: the attribute, or else the item.
func getAttr(v Value, name string) (Value, error) {
	if u, ok := v.(undefined); ok {
		return nil, u.err()
	}
	if attr, ok := attribute(v, name); ok {
		return attr, nil
	}
	if d, ok := v.(*Dict); ok {
		if item, ok := d.lookUp(name); ok {
			return item, nil
		}
	}
	if v == nil {
		return undefined{fmt.Sprintf("None has no attribute '%s'", name)}, nil
	}
	return undefined{fmt.Sprintf("'%s object' has no attribute '%s'", typeName(v), name)}, nil
}

// slice is v[start:stop:step].
func slice(st *state, v Value, bounds [3]Value) (Value, error) {
	n, ok := lengthOf(v)
	if u, missing := v.(undefined); missing {
		return nil, u.err()
	}
	_, isDict := v.(*Dict)
	if !ok || isDict {
		return nil, fmt.Errorf("'%s' cannot be sliced", typeName(v))
	}
	indices, err := sliceIndices(n, bounds)
	if err != nil {
		return nil, err
	}
	if err := st.charge(16 * n); err != nil {
		return nil, err
	}
	if s, ok := v.(string); ok {
		runes := []rune(s)
		out := make([]rune, len(indices))
		for i, j := range indices {
			out[i] = runes[j]
		}
		return string(out), nil
	}
	l := v.(*List)
	out := &List{Items: make([]Value, len(indices)), tuple: l.tuple}
	for i, j := range indices {
		out.Items[i] = l.Items[j]
	}
	return out, nil
}

// sliceIndices returns the indices of Python's slice.indices(n).
func sliceIndices(n int, bounds [3]Value) ([]int, error) {
	step := int64(1)
	if bounds[2] != nil {
		s, ok := toInt(bounds[2])
		if !ok || s == 0 {
			return nil, fmt.Errorf("slice step must be an integer other than 0")
		}
		step = max(min(s, int64(n)+1), -int64(n)-1)
	}
	low, high := int64(0), int64(n)
	if step < 0 {
		low, high = -1, int64(n)-1
	}
	at := [2]int64{low, high}
	if step < 0 {
		at = [2]int64{high, low}
	}
	for i, b := range bounds[:2] {
		if b == nil {
			continue
		}
		k, ok := toInt(b)
		if !ok {
			return nil, fmt.Errorf("slice bounds must be integers")
		}
		if k < 0 {
			k = max(k, -int64(n)-1) + int64(n)
		}
		at[i] = max(min(k, high), low)
	}
	var out []int
	for i := at[0]; step > 0 && i < at[1] || step < 0 && i > at[1]; i += step {
		out = append(out, int(i))
	}
	return out, nil
}
