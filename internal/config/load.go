package config

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"temper/internal/fault"
)

var durationType = reflect.TypeFor[time.Duration]()

// Problem is one mistake in a configuration.
type Problem struct {
	File      string
	Line, Col int
	Path      string
	Msg       string
}

// String is "file:line:col: key: message", without the parts that are unknown.
func (p Problem) String() string {
	where := p.File
	if p.Line > 0 {
		where = fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Col)
	}
	return strings.TrimPrefix(where+": ", ": ") + strings.TrimPrefix(p.Path+": ", ": ") + p.Msg
}

// Problems is every mistake of a configuration, in file order.
type Problems []Problem

// Err is the problems as an error; nil where there are none.
func (ps Problems) Err() error {
	if len(ps) == 0 {
		return nil
	}
	return ps
}

// Error lists one problem a line.
func (ps Problems) Error() string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// FaultKind reports that problems are the user's to mend.
func (ps Problems) FaultKind() fault.Kind { return fault.InvalidConfig }

// LoadFile reads a run's configuration from a YAML file, applies the overrides
// and validates. Relative paths in it count from the folder of the file and
// come back absolute, so that every process finds them. Those of overrides do so
// too, unless ResolvePaths has made them absolute. The error is Problems when the
// content is at fault.
func LoadFile(path string, set map[string]string) (Run, error) {
	data, err := os.ReadFile(path) //nolint:gosec // the user names the file
	if err != nil {
		return Run{}, fmt.Errorf("configuration: %w", err)
	}
	run, err := Load(path, data, set)
	folder, absErr := filepath.Abs(filepath.Dir(path))
	if absErr != nil {
		return run, errors.Join(err, absErr)
	}
	for _, p := range diskPaths(reflect.ValueOf(&run).Elem(), "", "") {
		if !filepath.IsAbs(p.value.String()) {
			p.value.SetString(filepath.Join(folder, p.value.String()))
		}
	}
	return run, err
}

// diskPath is a text that is a place on disk.
type diskPath struct {
	key   string
	value reflect.Value
}

// diskPaths are all places on disk at and below v, which has the given key and the
// tag "path" of its field.
func diskPaths(v reflect.Value, key, tag string) []diskPath {
	var out []diskPath
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			f := v.Type().Field(i)
			out = append(out, diskPaths(v.Field(i), join(key, keyOf(f)), f.Tag.Get("path"))...)
		}
	case reflect.Slice:
		for i := range v.Len() {
			out = append(out, diskPaths(v.Index(i), fmt.Sprintf("%s[%d]", key, i), tag)...)
		}
	case reflect.String:
		_, stored := StoreKey(v.String())
		if v.String() != "" && !stored && (tag == "yes" || tag == "jinja" && filepath.Ext(v.String()) == templateEnding) {
			out = append(out, diskPath{key, v})
		}
	default: // no text
	}
	return out
}

// ResolvePaths returns overrides whose relative paths count from the working
// folder: as they are, with a further override for each path that is not absolute.
// A path may be a value ("sft.data.path") or lie inside one ("sft.data" set to
// "{path: lines.jsonl}"). Keys that do not exist are left to Load, which refuses them.
func ResolvePaths(set map[string]string) (map[string]string, error) {
	out := maps.Clone(set)
	for _, key := range slices.Sorted(maps.Keys(set)) {
		t, tag := typeOfKey(key)
		node, problem := parseYAML([]byte(set[key]))
		if t == nil {
			continue
		}
		v := reflect.New(t).Elem()
		if v.Kind() == reflect.String { // as override takes it
			v.SetString(set[key])
		}
		if problem == nil && node != nil {
			(&binder{at: map[string]position{}}).bind(node, v, key)
		}
		for _, p := range diskPaths(v, key, tag) {
			full, err := filepath.Abs(p.value.String())
			if err != nil {
				return out, fmt.Errorf("--set %s: %w", key, err)
			}
			// A key set by itself wins over its section, as in Load.
			if _, stated := set[p.key]; !stated || p.key == key {
				out[p.key] = full
			}
		}
	}
	return out, nil
}

// typeOfKey is the type of a key's value and the tag "path" of its field; nil when
// there is no such key.
func typeOfKey(key string) (t reflect.Type, path string) {
	t = reflect.TypeFor[Run]()
	for _, part := range strings.Split(key, ".") {
		name, index := splitIndex(part)
		if t == reflect.TypeFor[Tools]() { // the part is the name of a tool
			t, path = reflect.TypeFor[ToolOptions](), ""
			continue
		}
		if t.Kind() != reflect.Struct {
			return nil, ""
		}
		f, ok := typeByKey(t, name)
		if !ok {
			return nil, ""
		}
		t, path = f.Type, f.Tag.Get("path")
		if index >= 0 {
			if t.Kind() != reflect.Slice {
				return nil, ""
			}
			t = t.Elem()
		}
	}
	return t, path
}

// Load decodes YAML (or JSON) strictly over the defaults, applies overrides of
// the form "rl.roc.enabled" -> "false" and validates. name stands for the file
// in messages.
func Load(name string, data []byte, set map[string]string) (Run, error) {
	run := Default()
	b := &binder{file: name, at: map[string]position{}}
	if root, err := parseYAML(data); err != nil {
		err.File = name
		return run, Problems{*err}
	} else if root != nil {
		b.bind(root, reflect.ValueOf(&run).Elem(), "")
	}
	for _, key := range slices.Sorted(maps.Keys(set)) {
		b.override(&run, key, set[key])
	}
	run.Model.forgetDefaults(func(path string) bool {
		_, inFile := b.at[path]
		_, inSet := set[path]
		return inFile || inSet
	})
	for _, found := range run.problems() {
		found.File = name
		if pos, ok := b.at[found.Path]; ok {
			found.Line, found.Col = pos.line, pos.col
		}
		if !b.failed(found.Path) {
			b.problems = append(b.problems, found)
		}
	}
	if len(b.problems) > 0 {
		slices.SortStableFunc(b.problems, func(a, b Problem) int { return a.Line - b.Line })
		return run, b.problems
	}
	return run, nil
}

// failed reports whether a value at, above or below a path could not be read. The
// default that stands there is then no mistake of the user.
func (b *binder) failed(path string) bool {
	within := func(inner, outer string) bool {
		rest, ok := strings.CutPrefix(inner, outer)
		return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
	}
	return slices.ContainsFunc(b.problems, func(p Problem) bool {
		return within(path, p.Path) || within(p.Path, path)
	})
}

// Validate reports every problem of the configuration at once, as Problems.
func (r Run) Validate() error {
	if ps := r.problems(); len(ps) > 0 {
		return ps
	}
	return nil
}

// YAML is the frozen form that is stored with the run.
func (r Run) YAML() ([]byte, error) {
	return yaml.Marshal(r)
}

// Hash identifies a configuration: equal hashes mean equal results.
func (r Run) Hash() (string, error) {
	data, err := r.YAML()
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:]), nil
}

func parseYAML(data []byte) (ast.Node, *Problem) {
	f, err := parser.ParseBytes(data, 0)
	if err != nil {
		var syntax *yaml.SyntaxError
		if errors.As(err, &syntax) && syntax.Token != nil {
			return nil, &Problem{Line: syntax.Token.Position.Line, Col: syntax.Token.Position.Column, Msg: syntax.Message}
		}
		return nil, &Problem{Msg: strings.SplitN(err.Error(), "\n", 2)[0]}
	}
	if len(f.Docs) > 1 && f.Docs[1].Body != nil {
		return nil, &Problem{Msg: "more than one YAML document"}
	}
	if len(f.Docs) == 0 || f.Docs[0].Body == nil {
		return nil, nil
	}
	return f.Docs[0].Body, nil
}

// override sets one key path, for example "stages[1].until.steps" -> "5".
func (b *binder) override(run *Run, path, value string) {
	sub := &binder{file: "--set " + path + "=" + value, at: b.at}
	defer func() { b.problems = append(b.problems, sub.problems...) }()
	v, problem := field(reflect.ValueOf(run).Elem(), path)
	if problem != "" {
		sub.fail(nil, path, "%s", problem)
		return
	}
	node, unreadable := parseYAML([]byte(value))
	if unreadable != nil || node == nil {
		if v.Kind() == reflect.String {
			v.SetString(value)
			return
		}
		sub.fail(nil, path, "cannot read the value %q", value)
		return
	}
	sub.bind(node, v, path)
	for i := range sub.problems {
		sub.problems[i].Line, sub.problems[i].Col = 0, 0
	}
	delete(b.at, path)
}

// field finds the value of a key path, or says what is wrong with the path.
func field(v reflect.Value, path string) (found reflect.Value, problem string) {
	for _, part := range strings.Split(path, ".") {
		key, index := splitIndex(part)
		if own, ok := v.Addr().Interface().(interface {
			byKey(name string) reflect.Value
		}); ok {
			v = own.byKey(part)
			continue
		}
		if v.Kind() != reflect.Struct {
			return v, fmt.Sprintf("no such key: %q is no mapping", part)
		}
		inner, ok := fieldByKey(v, key)
		if !ok {
			return v, fmt.Sprintf("unknown key %q%s", key, known(key, v.Type()))
		}
		if v = inner; index >= 0 {
			if v.Kind() != reflect.Slice || index >= v.Len() {
				return v, fmt.Sprintf("no element %s", part)
			}
			v = v.Index(index)
		}
	}
	return v, ""
}
