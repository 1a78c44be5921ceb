package evaluate

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
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
		was, is := set, o.Sets[at]
		was.Path, is.Path, was.Rollouts, is.Rollouts, was.Problems, is.Problems = "", "", 0, 0, nil, nil
		a, errA := json.Marshal(was)
		b, errB := json.Marshal(is)
		if errA != nil || errB != nil || string(a) != string(b) {
			return fmt.Sprintf("set %s: %s, now %s", set.Name, a, b)
		}
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

// checkSettings writes the settings of a new folder, and compares those of an old one.
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
		return nil
	case was.Server != now.Server && was.Server != "" && now.Server != "":
		return fmt.Errorf("%s: its samples were made with other settings: %s; name another folder with --out, or, if the same model has moved, write its address into %s",
			folder, different, filepath.Join(folder, settingsName))
	}
	return fmt.Errorf("%s: its samples were made with other settings: %s; name another folder with --out", folder, different)
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
