package evaluate

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"temper/internal/reward"
)

// suites returns the settings of known benchmarks, whose problems the user imports. The
// mathematical ones and GPQA follow arXiv 2508.20722, section 5: 16 samples at temperature
// 0.6, 30 turns and 30K tokens.
func suites() map[string]Set {
	paper := Set{Rollouts: 16, Temperature: 0.6, MaxTurns: 30, MaxTokens: 30 << 10, Mode: Mode(reward.Released)}
	choice, greedy := paper, Set{Rollouts: 1, MaxTurns: 30, MaxTokens: 8 << 10, Mode: Mode(reward.Released)}
	choice.Mode = Choice
	// Of BFCL, IFEval and the like the paper samples once, at temperature 0.
	rules, calls := greedy, greedy
	rules.Mode, rules.MaxTurns, calls.Mode, calls.MaxTurns = Rules, 1, Calls, 1
	return map[string]Set{
		"aime24": paper, "aime25": paper, "hmmt25": paper, "math500": paper,
		"gpqa-diamond": choice, "gsm8k": greedy, "ifeval": rules, "bfcl": calls,
	}
}

// SuiteNames are the names of all suites.
func SuiteNames() []string { return slices.Sorted(maps.Keys(suites())) }

// ParseSet reads NAME=FILE. The name of a suite selects its settings, any other name the
// settings of plain.
func ParseSet(text string, plain Set) (Set, error) {
	name, path, ok := strings.Cut(text, "=")
	if !ok || name == "" || path == "" {
		return Set{}, fmt.Errorf("is %q, want NAME=FILE, with a name of your own or one of %s", text, strings.Join(SuiteNames(), ", "))
	}
	set, known := suites()[name]
	if !known {
		set = plain
	}
	set.Name, set.Path = name, path
	return set, nil
}
