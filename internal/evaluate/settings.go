package evaluate

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"temper/internal/openai/chatclient"
	"temper/internal/reward"
)

// Settings are what the samples of a journal depend on; a journal of other settings is
// refused.
type Settings struct {
	Model string `json:"model"`
	// Source is nil in the folders of versions that did not note it.
	Source *Source `json:"source,omitempty"`
	Seed   uint64  `json:"seed"`
	Tools  bool    `json:"tools"`
	// System is the system message, in whole.
	System string `json:"system,omitempty"`
	Sets   []Set  `json:"sets"`
}

// Source is what made the samples: a name of a model says little.
type Source struct {
	// Weights is the digest of a model that this process opened; Server is the address of
	// any other.
	Weights string `json:"weights,omitempty"`
	Server  string `json:"server,omitempty"`
	// Card is what the server says of the model; see checkCard.
	Card chatclient.Card `json:"card,omitempty"`
	// Tools are the names of those that the model got.
	Tools []string `json:"tools,omitempty"`
	// MaxContext bounds a prompt and its answer; 0 is what the model allows.
	MaxContext int `json:"max_context,omitempty"`
}

func (c Config) settings() Settings {
	return Settings{Model: c.Label, Source: &c.Source, Seed: c.Seed, Tools: c.NewTools != nil, System: c.System, Sets: c.Sets}
}

// differs names the first setting that two evaluations do not share.
func (s Settings) differs(o Settings) string {
	switch {
	case s.Model != o.Model:
		return fmt.Sprintf("model %q, now %q", s.Model, o.Model)
	case s.Seed != o.Seed:
		return fmt.Sprintf("seed %d, now %d", s.Seed, o.Seed)
	case s.Tools != o.Tools:
		return fmt.Sprintf("tools %v, now %v", s.Tools, o.Tools)
	case s.System != o.System:
		return "another system message"
	}
	for _, set := range s.Sets {
		at := slices.IndexFunc(o.Sets, func(x Set) bool { return x.Name == set.Name })
		if at < 0 {
			continue // not asked for now; its samples stay
		}
		if different := set.differs(o.Sets[at]); different != "" {
			return different
		}
	}
	return ""
}

// differs compares how samples of a set are made and judged. Their number and the place of
// the file may be others.
func (s Set) differs(o Set) string {
	s.Path, o.Path, s.Rollouts, o.Rollouts, s.Problems, o.Problems = "", "", 0, 0, nil, nil
	a, errA := json.Marshal(s)
	b, errB := json.Marshal(o)
	if errA != nil || errB != nil || string(a) != string(b) {
		return fmt.Sprintf("set %s: %s, now %s", s.Name, a, b)
	}
	return ""
}

// differs names the first part in which two sources are not the same.
func (s Source) differs(o Source) string {
	switch {
	case s.Server != o.Server:
		return fmt.Sprintf("server %q, now %q", s.Server, o.Server)
	case s.Weights != o.Weights:
		return fmt.Sprintf("weights %.12s, now %.12s", s.Weights, o.Weights)
	case !slices.Equal(s.Tools, o.Tools):
		return fmt.Sprintf("tools %q, now %q", s.Tools, o.Tools)
	case s.MaxContext != o.MaxContext:
		return fmt.Sprintf("a context of %d tokens, now %d (0 is what the model allows)", s.MaxContext, o.MaxContext)
	}
	return ""
}

// readSettings reads the settings of a folder. Errors: fs.ErrNotExist where it has none.
func readSettings(folder string) (Settings, error) {
	name := filepath.Join(folder, settingsName)
	var s Settings
	data, err := os.ReadFile(name) //nolint:gosec // the user names the folder
	if err != nil {
		return s, err
	}
	if err := json.Unmarshal(data, &s); err != nil {
		return s, fmt.Errorf("%s: %w", name, err)
	}
	return s, nil
}

// Stored returns the settings of a folder's samples. Rollouts is the number of samples that
// each problem of a set has; missing says which sets were to have more. Errors:
// fs.ErrNotExist where the folder has no settings.
func Stored(folder string) (s Settings, missing []string, err error) {
	if s, err = readSettings(folder); err != nil {
		return s, nil, err
	}
	samples, err := ReadSamples(folder)
	if err != nil {
		return s, nil, err
	}
	whole := wholeSamples(samples)
	for i := range s.Sets {
		set := &s.Sets[i]
		if whole[set.Name] < set.Rollouts {
			missing = append(missing, fmt.Sprintf("%s: %d of %d samples of each problem are there", set.Name, whole[set.Name], set.Rollouts))
		}
		set.Rollouts = max(1, whole[set.Name])
	}
	return s, missing, nil
}

// wholeSamples is how many samples each problem of a set has, counted from the first one
// without a gap.
func wholeSamples(samples []Sample) map[string]int {
	type problem struct{ set, id string }
	of := map[problem]int{}
	for _, s := range samples { // in the order of their numbers
		p := problem{s.Set, s.Problem}
		if n := of[p]; s.Sample == n {
			of[p] = n + 1
		} else {
			of[p] = n
		}
	}
	out := map[string]int{}
	for p, n := range of {
		if least, seen := out[p.set]; !seen || n < least {
			out[p.set] = n
		}
	}
	return out
}

// Again is a set of a folder as its samples were made, to judge them again with the
// problems of path. Errors: a set that the folder does not have.
func (s Settings) Again(name, path string) (Set, error) {
	at := slices.IndexFunc(s.Sets, func(x Set) bool { return x.Name == name })
	if at < 0 {
		return Set{}, fmt.Errorf("%s: the folder has no samples of it", name)
	}
	set := s.Sets[at]
	set.Path = path
	return set, nil
}

// CheckAgain reports what of a set is not how its samples were made. Another mode judges
// them by other rules, which is what judging again is for.
func (s Settings) CheckAgain(set Set) error {
	was, err := s.Again(set.Name, set.Path)
	if err != nil {
		return err
	}
	if was.SHA256 != set.SHA256 {
		return fmt.Errorf("%s: %s is not the file that its samples answer: sha256 %.12s, now %.12s", set.Name, set.Path, was.SHA256, set.SHA256)
	}
	was.Mode = set.Mode
	if different := was.differs(set); different != "" {
		return fmt.Errorf("%s: its samples were made with other settings: %s", set.Name, different)
	}
	return nil
}

// Against reads the samples of another folder, to compare sets with. It refuses a set with
// other problems under the same name. It does not check a folder without settings.
func Against(folder string, sets []Set) ([]Sample, error) {
	samples, err := ReadSamples(folder)
	if err != nil {
		return nil, err
	}
	s, err := readSettings(folder)
	if errors.Is(err, fs.ErrNotExist) {
		return samples, nil
	}
	if err != nil {
		return nil, err
	}
	for _, set := range sets {
		if was, err := s.Again(set.Name, set.Path); err == nil && was.SHA256 != set.SHA256 {
			return nil, fmt.Errorf("--against %s: set %s has other problems there: sha256 %.12s, here %.12s of %s", folder, set.Name, was.SHA256, set.SHA256, set.Path)
		}
	}
	return samples, nil
}

// checkSettings writes the settings of a new folder, and compares the settings of an old one.
func checkSettings(folder string, now Settings) error {
	was, err := readSettings(folder)
	if errors.Is(err, fs.ErrNotExist) {
		return writeSettings(folder, now)
	}
	if err != nil {
		return err
	}
	if different := was.differs(now); different != "" {
		return fmt.Errorf("%s: its samples were made with other settings: %s; name another folder with --out", folder, different)
	}
	if err := checkSource(folder, was.Source, *now.Source); err != nil {
		return err
	}
	was.Source.Card = was.Source.Card.With(now.Source.Card) // what the server did not tell before
	for _, set := range now.Sets {
		if !slices.ContainsFunc(was.Sets, func(s Set) bool { return s.Name == set.Name }) {
			was.Sets = append(was.Sets, set)
		}
	}
	return writeSettings(folder, was)
}

// checkSource compares what made the samples of a folder with what is to make more.
func checkSource(folder string, was *Source, now Source) error {
	if was == nil {
		line, err := json.Marshal(now)
		if err != nil {
			return err
		}
		return fmt.Errorf(`%s: an earlier version made its samples and did not note by which weights, server and tools. --reverify reports them as they are. `+
			`To add samples of this model, write "source": %s, into %s, if the same made those that are there; else name another folder with --out`,
			folder, line, filepath.Join(folder, settingsName))
	}
	different := was.differs(now)
	switch {
	case different == "":
		return checkCard(folder, was.Card, now.Card)
	case was.Server != now.Server && was.Server != "" && now.Server != "":
		return fmt.Errorf("%s: its samples were made with other settings: %s; name another folder with --out, or, if the same model has moved, write its address into %s",
			folder, different, filepath.Join(folder, settingsName))
	}
	return fmt.Errorf("%s: its samples were made with other settings: %s; name another folder with --out", folder, different)
}

// checkCard compares what the server said of the model with what it says now.
func checkCard(folder string, was, now chatclient.Card) error {
	if d := was.Differs(now); d.Field != "" {
		return &otherModelError{folder, d}
	}
	return nil
}

// otherModelError means that the server of a folder's samples now serves another model.
type otherModelError struct {
	folder string
	chatclient.Difference
}

// Error implements error.
func (e *otherModelError) Error() string {
	return fmt.Sprintf("%s: its samples are of a model of which the server said %s %.200q, now %.200q; name another folder with --out, or, if it is the same model, take %q out of the card in %s",
		e.folder, e.Field, e.Was, e.Now, e.Field, filepath.Join(e.folder, settingsName))
}

// writeSettings replaces the file whole: a crash leaves the old one or the new one.
func writeSettings(folder string, s Settings) error {
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	name := filepath.Join(folder, settingsName)
	if err := os.WriteFile(name+".new", append(data, '\n'), 0o644); err != nil { //nolint:gosec // results are for everybody to read
		return err
	}
	return os.Rename(name+".new", name)
}

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
