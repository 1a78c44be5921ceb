package config

import "fmt"

// Data is how preparation processes the sets of a run.
type Data struct {
	// Mix are the files whose dialogues SFT learns from, in place of sft.data.
	Mix []MixPart `yaml:"mix,omitempty" json:"mix,omitempty"`
	// MixBy tells what the shares of the mix are: how often the rows of a file come, in parts
	// of a pass too, or the file's weight in the mix.
	MixBy string `yaml:"mix_by,omitempty" json:"mix_by,omitempty" enum:"epochs|weights" empty:"epochs"`
	// MixNum is the number of dialogues of a mix by weights; 0 means as many as the files
	// have. A file that is too short for its weight comes again.
	MixNum int `yaml:"mix_num,omitempty" json:"mix_num,omitempty" range:"0..100000000" unit:"dialogues"`
	// MaxDropped is the share of a set that preparation may drop: problems with the prompt
	// of another one or of a held-out one, prompts and dialogues that are too long, and
	// dialogues that do not fit the chat format. It counts what it drops, and refuses more.
	MaxDropped float64 `yaml:"max_dropped" json:"max_dropped" range:"0..1"`
}

// MixPart is one file of a mix.
type MixPart struct {
	// Path is a JSONL file of dialogues, or "store:KEY". A relative path counts from the
	// folder of the configuration file.
	Path string `yaml:"path" json:"path" path:"yes"`
	// Share is how often its rows come, or its weight; see data.mix_by.
	Share float64 `yaml:"share" json:"share" range:"0..1000000"`
}

func (m *MixPart) setDefaults() { m.Share = 1 }

// Values of Data.MixBy; empty means epochs.
const (
	MixByEpochs  = "epochs"
	MixByWeights = "weights"
)

// checkMix checks the mix of the dialogues.
func checkMix(c *checker, r Run) {
	d := r.Data
	if len(d.Mix) == 0 {
		return
	}
	if r.SFT.Data.Path != "" {
		c.add("data.mix", "excludes sft.data.path: name that file in the mix")
	}
	total := 0.0
	for i, p := range d.Mix {
		if p.Path == "" {
			c.add(fmt.Sprintf("data.mix[%d].path", i), "is missing")
		}
		if total += p.Share; p.Share == 0 && d.MixBy != MixByWeights {
			c.add(fmt.Sprintf("data.mix[%d].share", i), "is 0, want a part of a pass or more: leave the file out")
		}
	}
	if total == 0 && d.MixBy == MixByWeights {
		c.add("data.mix", "has weights that sum to nothing")
	}
	if d.MixNum > 0 && d.MixBy != MixByWeights {
		c.add("data.mix_num", "is %d, but the mix is by epochs: set data.mix_by to weights", d.MixNum)
	}
}
