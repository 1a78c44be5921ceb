package evaluate

import (
	"slices"
	"strings"
	"unicode"
)

// Count sums up the tokens of a class, or at a distance.
type Count struct {
	Tokens int `json:"tokens"`
	// Top are those among the most uncertain of their trajectories.
	Top int `json:"top"`
	// Entropy is the mean, in nats; 0 without tokens.
	Entropy float64 `json:"entropy"`
}

func (c *Count) add(k *Token) {
	c.Tokens++
	c.Entropy += (k.Entropy - c.Entropy) / float64(c.Tokens)
	if k.Top {
		c.Top++
	}
}

// Share of the tokens that are among the most uncertain ones; 0 without tokens.
func (c Count) Share() float64 {
	if c.Tokens == 0 {
		return 0
	}
	return float64(c.Top) / float64(c.Tokens)
}

// ClassCount is the count of a class.
type ClassCount struct {
	Class Class `json:"class"`
	Count
}

// Distance counts tokens From to To-1 after the beginning of a turn that follows a tool's
// response, in whichever class.
type Distance struct {
	From int `json:"from"`
	To   int `json:"to"`
	Count
}

// Word counts a text that uncertain tokens of a class have in common.
type Word struct {
	Class Class  `json:"class"`
	Text  string `json:"text"`
	Count int    `json:"count"`
}

// EntropySummary sums up all trajectories.
type EntropySummary struct {
	Trajectories int          `json:"trajectories"`
	All          Count        `json:"all"`
	Classes      []ClassCount `json:"classes"`
	// Before counts the tokens of turns that follow no tool's response.
	Before Count `json:"before_tools"`
	// After has the tokens after a tool's response by their distance from it.
	After []Distance `json:"after_tools"`
	// Forking and reflecting words: the most frequent texts of the most uncertain tokens
	// of Reasoning and of Reflection.
	Words []Word `json:"words"`
}

// distances are where the ranges of Summary.After begin.
func distances() []int { return []int{0, 1, 2, 4, 8, 16, 32, 64, 128, 1 << 30} }

// mostWords is how many words a class has in a Summary.
const mostWords = 20

// SummarizeEntropy counts over judged trajectories.
func SummarizeEntropy(ts []Trajectory) EntropySummary {
	t := tally{classes: map[Class]*Count{}, after: make([]Count, len(distances())-1), words: map[Word]int{}}
	for _, c := range Classes() {
		t.classes[c] = &Count{}
	}
	for i := range ts {
		for j := range ts[i].Tokens {
			if k := &ts[i].Tokens[j]; k.Sampled {
				t.add(k)
			}
		}
	}
	s := EntropySummary{Trajectories: len(ts), All: t.all, Before: t.before, After: []Distance{}, Words: []Word{}}
	for _, c := range Classes() {
		s.Classes = append(s.Classes, ClassCount{c, *t.classes[c]})
	}
	for i, c := range t.after {
		if c.Tokens > 0 {
			s.After = append(s.After, Distance{distances()[i], distances()[i+1], c})
		}
	}
	for _, c := range []Class{Reasoning, Reflection} {
		s.Words = append(s.Words, frequent(t.words, c)...)
	}
	return s
}

// tally counts the tokens of all trajectories.
type tally struct {
	all, before Count
	classes     map[Class]*Count
	after       []Count // by distances
	words       map[Word]int
}

// add counts a sampled token.
func (t *tally) add(k *Token) {
	t.all.add(k)
	t.classes[k.Class].add(k)
	if k.Since < 0 {
		t.before.add(k)
	} else {
		at, exact := slices.BinarySearch(distances(), k.Since)
		if !exact {
			at--
		}
		t.after[at].add(k)
	}
	if word := wordOf(k.Text); k.Top && word != "" && (k.Class == Reasoning || k.Class == Reflection) {
		t.words[Word{Class: k.Class, Text: word}]++
	}
}

// wordOf is a token's text as a word, "" for one without a letter.
func wordOf(text string) string {
	text = strings.ToLower(strings.TrimSpace(text))
	if !strings.ContainsFunc(text, unicode.IsLetter) {
		return ""
	}
	return text
}

func frequent(words map[Word]int, class Class) []Word {
	var out []Word
	for w, n := range words {
		if w.Class == class {
			w.Count = n
			out = append(out, w)
		}
	}
	slices.SortFunc(out, func(a, b Word) int {
		if a.Count != b.Count {
			return b.Count - a.Count
		}
		return strings.Compare(a.Text, b.Text)
	})
	return out[:min(len(out), mostWords)]
}
