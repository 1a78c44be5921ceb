package jinja_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"temper/internal/chat/jinja"
)

// TestHostileTemplatesEnd: whatever a template tries, it ends soon with an error.
func TestHostileTemplatesEnd(t *testing.T) {
	bombs := map[string]string{
		"long string":    "{{ 'a' * 1000000000 }}",
		"doubling":       "{% set ns = namespace(s='ab') %}{% for i in range(100) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
		"nested loops":   "{% for a in range(90000) %}{% for b in range(90000) %}{% endfor %}{% endfor %}",
		"long range":     "{{ range(1000000000)|list }}",
		"list of lists":  "{% set ns = namespace(l=[1]) %}{% for i in range(60) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l }}",
		"its JSON":       "{% set ns = namespace(l=[1]) %}{% for i in range(60) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l|tojson }}",
		"its equality":   "{% set ns = namespace(l=[1], m=[1]) %}{% for i in range(60) %}{% set ns.l = [ns.l, ns.l] %}{% set ns.m = [ns.m, ns.m] %}{% endfor %}{{ ns.l == ns.m }}",
		"deep equality":  "{% set ns = namespace(l=[1], m=[1]) %}{% for i in range(90000) %}{% set ns.l = [ns.l] %}{% set ns.m = [ns.m] %}{% endfor %}{{ ns.l == ns.m }}",
		"recursion":      "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
		"much output":    "{% for i in range(90000) %}{{ 'x' * 1000 }}{% endfor %}",
		"replace":        "{{ ('a' * 100000)|replace('a', 'b' * 100000) }}",
		"join":           "{{ range(90000)|join('x' * 100000) }}",
		"padding":        "{{ 'a'.ljust(1000000000) }}{{ 'a'|center(1000000000) }}",
		"separators":     "{{ range(90000)|list|tojson(separators=('x' * 100000, ':')) }}",
		"indent":         "{{ range(90000)|list|tojson(indent='x' * 100000) }}",
		"indented lines": "{{ ('\\n' * 100000)|indent('x' * 100000) }}",
		"power":          "{{ 9 ** 9 ** 9 }}",
		"format width":   "{{ '%1000000000s' % 'a' }}",
		"deep syntax":    "{{ " + strings.Repeat("(", 5000) + "1" + strings.Repeat(")", 5000) + " }}",
		"deep negation":  "{{ " + strings.Repeat("not ", 5000) + "1 }}",
		"deep signs":     "{{ " + strings.Repeat("- ", 5000) + "1 }}",
		"deep blocks":    strings.Repeat("{% if 1 %}", 5000),
		"include":        "{% include '/etc/passwd' %}",
		"import":         "{% import 'x' as y %}",
		"date":           "{{ strftime_now('%Y') }}",
	}
	for name, source := range bombs {
		t.Run(name, func(t *testing.T) {
			start := time.Now()
			got, err := render(source, jinja.NewDict())
			if err == nil {
				t.Errorf("rendered %d bytes, want an error", len(got))
			}
			if took := time.Since(start); took > 20*time.Second {
				t.Errorf("took %v", took)
			}
		})
	}
}

func TestRaiseExceptionIsTyped(t *testing.T) {
	_, err := render("\n{{ raise_exception('no') }}", jinja.NewDict())
	var raised *jinja.Exception
	if !errors.As(err, &raised) || raised.Message != "no" || !strings.Contains(err.Error(), "line 2") {
		t.Errorf("error %v, want the exception of line 2", err)
	}
}

func TestDateAndGeneration(t *testing.T) {
	tmpl, err := jinja.Parse("{{ strftime_now('%d %b %Y %-d %A %H:%M %%') }}|{% generation %}ab{% endgeneration %}c")
	if err != nil {
		t.Fatal(err)
	}
	out, err := tmpl.Render(jinja.NewDict(), jinja.Options{Now: time.Date(2026, 3, 7, 9, 5, 0, 0, time.UTC)})
	if err != nil {
		t.Fatal(err)
	}
	if want := "07 Mar 2026 7 Saturday 09:05 %|abc"; out.Text != want {
		t.Errorf("got %q, want %q", out.Text, want)
	}
	if len(out.Generated) != 1 || out.Text[out.Generated[0][0]:out.Generated[0][1]] != "ab" {
		t.Errorf("generated ranges %v", out.Generated)
	}
}

// TestJSONRoundTrip: what tojson writes, Decode reads back, members in order.
func TestJSONRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := jinja.NewDict()
		for range rapid.IntRange(0, 5).Draw(t, "members") {
			d.Set(rapid.String().Draw(t, "name"), rapid.OneOf(
				rapid.Map(rapid.String(), func(s string) jinja.Value { return s }),
				rapid.Map(rapid.Float64(), func(f float64) jinja.Value { return f }),
				rapid.Map(rapid.Int64(), func(n int64) jinja.Value { return n }),
			).Draw(t, "value"))
		}
		text, err := toJSON(d)
		if err != nil {
			t.Fatal(err)
		}
		v, err := jinja.Decode([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		again, err := toJSON(v)
		if err != nil || again != text {
			t.Fatalf("%s became %s (%v)", text, again, err)
		}
	})
}

func toJSON(v jinja.Value) (string, error) {
	vars := jinja.NewDict()
	vars.Set("v", v)
	return render("{{ v|tojson }}", vars)
}

func FuzzRender(f *testing.F) {
	for _, s := range []string{
		"{% for m in messages %}{{ m.role ~ m['content'] | trim }}{% endfor %}", "{{ messages[::-1] | tojson(indent=2) }}",
		"{%- set ns = namespace(a=1) -%}{% set ns.a = ns.a // -2 %}{{ '%s' % ns.a }}", "{% macro f(x) %}{{ x }}{% endmacro %}{{ f(1) }}{# c #}{% raw %}{{{% endraw %}",
	} {
		f.Add(s)
	}
	vars, err := jinja.Decode([]byte(`{"messages": [{"role": "user", "content": " x\u00e9 "}, {"role": "tool", "content": null, "n": [1, 2.5, true]}]}`))
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, source string) {
		a, errA := render(source, vars.(*jinja.Dict))
		b, errB := render(source, vars.(*jinja.Dict))
		if a != b || (errA == nil) != (errB == nil) {
			t.Fatalf("two renders of %q differ", source)
		}
	})
}
