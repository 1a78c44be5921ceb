package builtin

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

func evaluate(expression string) (string, error) {
	arguments, err := json.Marshal(map[string]string{"expression": expression})
	if err != nil {
		return "", err
	}
	return calculate(arguments)
}

func TestCalculator(t *testing.T) {
	for expression, want := range map[string]string{
		"1 + 2*3": "7", "(1+2)*3": "9", "2**10": "1024", "2^10": "1024", "-2**2": "-4", "(-2)**2": "4", "2**3**2": "512", "2**-2": "0.25",
		"0.1 + 0.2": "0.3", ".5*4": "2", "1/3": "1/3 (about 0.333333333333)", "2/3 + 1/3": "1", "10/4": "2.5", "1e": "error",
		"7 // 2": "3", "-7 // 2": "-4", "-7 % 3": "2", "7 % -3": "-2", "7.5 % 2": "1.5", "8 - 3 - 2": "3", "8/4/2": "1", "--3": "3", "+-+3": "-3",
		"floor(-1/2)": "-1", "ceil(7/2)": "4", "abs(-3.25)": "3.25", "gcd(12, 18, 27)": "3", "lcm(4, 6, 10)": "60", "max(1, 1/2, 3)": "3", "min(2, 1/2, 3)": "0.5",
		"gcd(0, 0)": "0", "max(4)": "4", "6 \u00d7 7": "42", "6 \u00f7 4": "1.5", "5 \u2212 7": "-2", " 1\n+\t1 ": "2",
		"2**4000 / 2**3999": "2", "1**999999999999": "1", "(-1)**999999999999": "-1", "0**0": "1", "123456789123456789 * 987654321987654321": "121932631356500531347203169112635269",
	} {
		got, err := evaluate(expression)
		if want == "error" {
			if err == nil {
				t.Errorf("%s is %s, want an error", expression, got)
			}
			continue
		}
		if err != nil || got != want {
			t.Errorf("%s is %q (%v), want %q", expression, got, err, want)
		}
	}
}

func TestCalculatorRefuses(t *testing.T) {
	for expression, want := range map[string]string{
		"": "ends too early", "1 +": "ends too early", "(1": "ends too early", "1)": `unexpected ")" at character 2`, "1 2": `unexpected "2" at character 3`,
		"import os": `unexpected "import"`, "1.2.3": "unexpected", "abs(1, 2)": `unexpected "2"`, "abs": "ends too early", "gcd(1/2, 3)": "take integers",
		"1/0": "division by zero", "1 % (2-2)": "division by zero", "0**-1": "division by zero", "2**0.5": "must be an integer", "2**99999999999": "too large",
		"9**9**9": "too large", "2**4097": "too large", "\u00e9": "unexpected", "\xff": "unexpected", strings.Repeat("(", 200): "nested deeper", strings.Repeat("-", 200) + "1": "nested deeper",
		strings.Repeat("1", 1001): "above the limit", strings.Repeat("2**", 300) + "1": "nested deeper",
	} {
		if got, err := evaluate(expression); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q is %q (%v), want an error with %q", expression, got, err, want)
		}
	}
	if _, err := calculate(json.RawMessage(`[1]`)); err == nil {
		t.Error("arguments that are no object are accepted")
	}
}

// FuzzCalculator: every expression ends soon, in a line that is the same each time.
func FuzzCalculator(f *testing.F) {
	for _, seed := range []string{"1+2", "(1/3)**-7 % 2", "lcm(9**99, 7**99)", "2**4000*2**4000", "max(1,2,3)//0.1", strings.Repeat("9**99*", 90) + "1"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, expression string) {
		start := time.Now()
		got, err := evaluate(expression)
		if took := time.Since(start); took > 2*time.Second {
			t.Errorf("%.60q took %v", expression, took)
		}
		again, errAgain := evaluate(expression)
		if got != again || (err == nil) != (errAgain == nil) {
			t.Errorf("%.60q is %q and %q", expression, got, again)
		}
		if len(got) > 8*maxBits || strings.Contains(got, "\n") {
			t.Errorf("%.60q gives %d bytes", expression, len(got))
		}
	})
}
