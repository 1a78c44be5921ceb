package evaluate

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"temper/internal/answer"
	"temper/internal/reward"
)

// Rules is the mode of instructions that a program can check, as IFEval has them: the key
// of a problem is a JSON object of instruction_id_list and kwargs, and a response is right
// when it follows every one (the strict accuracy of prompts).
const Rules Mode = "rules"

const methodRules answer.Method = "rules"

// ruleKey is the key of a problem in mode Rules.
type ruleKey struct {
	IDs    []string     `json:"instruction_id_list"`
	Kwargs []ruleKwargs `json:"kwargs"`
}

// ruleKwargs are the arguments of an instruction; each takes some of them. given are the
// names of those that are there: some copies of IFEval have all, most of them null.
type ruleKwargs struct {
	given map[string]bool
	ruleArguments
}

type ruleArguments struct {
	Keywords     []string `json:"keywords"`
	Keyword      string   `json:"keyword"`
	Frequency    int      `json:"frequency"`
	Relation     string   `json:"relation"`
	Forbidden    []string `json:"forbidden_words"`
	Letter       string   `json:"letter"`
	LetFrequency int      `json:"let_frequency"`
	LetRelation  string   `json:"let_relation"`
	Language     string   `json:"language"`
	Sentences    int      `json:"num_sentences"`
	Paragraphs   int      `json:"num_paragraphs"`
	Words        int      `json:"num_words"`
	Nth          int      `json:"nth_paragraph"`
	FirstWord    string   `json:"first_word"`
	Placeholders int      `json:"num_placeholders"`
	Postscript   string   `json:"postscript_marker"`
	Bullets      int      `json:"num_bullets"`
	Highlights   int      `json:"num_highlights"`
	Splitter     string   `json:"section_spliter"`
	Sections     int      `json:"num_sections"`
	Repeat       string   `json:"prompt_to_repeat"`
	End          string   `json:"end_phrase"`
	Capitals     int      `json:"capital_frequency"`
	CapRelation  string   `json:"capital_relation"`
}

// UnmarshalJSON implements json.Unmarshaler.
func (k *ruleKwargs) UnmarshalJSON(data []byte) error {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(data, &members); err != nil {
		return err
	}
	k.given = map[string]bool{}
	for name, value := range members {
		if string(value) == "null" {
			delete(members, name)
			continue
		}
		k.given[name] = string(value) != `""` && string(value) != "[]"
	}
	data, err := json.Marshal(members)
	if err != nil {
		return err
	}
	strict := json.NewDecoder(bytes.NewReader(data))
	strict.DisallowUnknownFields()
	return strict.Decode(&k.ruleArguments)
}

// needed are the arguments without which an instruction asks for nothing. A relation that
// is left out is "at least".
func needed(id string) []string {
	switch id {
	case "keywords:existence":
		return []string{"keywords"}
	case "keywords:frequency":
		return []string{"keyword", "frequency"}
	case "keywords:forbidden_words":
		return []string{"forbidden_words"}
	case "keywords:letter_frequency":
		return []string{"letter", "let_frequency"}
	case "language:response_language":
		return []string{"language"}
	case "length_constraints:number_sentences":
		return []string{"num_sentences"}
	case "length_constraints:number_words":
		return []string{"num_words"}
	case "length_constraints:number_paragraphs":
		return []string{"num_paragraphs"}
	case "length_constraints:nth_paragraph_first_word":
		return []string{"num_paragraphs", "nth_paragraph", "first_word"}
	case "detectable_content:number_placeholders":
		return []string{"num_placeholders"}
	case "detectable_content:postscript":
		return []string{"postscript_marker"}
	case "detectable_format:number_bullet_lists":
		return []string{"num_bullets"}
	case "detectable_format:number_highlighted_sections":
		return []string{"num_highlights"}
	case "detectable_format:multiple_sections":
		return []string{"section_spliter", "num_sections"}
	case "combination:repeat_prompt":
		return []string{"prompt_to_repeat"}
	case "startend:end_checker":
		return []string{"end_phrase"}
	case "change_case:capital_word_frequency":
		return []string{"capital_frequency"}
	default:
		return nil
	}
}

// rule reports whether a text follows an instruction.
type rule func(text string, k ruleKwargs) bool

// rules are the instructions by name.
func rules() map[string]rule {
	out := wordRules()
	maps.Copy(out, formRules())
	return out
}

// wordRules are the instructions about words, languages and lengths.
func wordRules() map[string]rule {
	return map[string]rule{
		"keywords:existence": func(t string, k ruleKwargs) bool {
			return !slices.ContainsFunc(k.Keywords, func(w string) bool { return countFold(t, w) == 0 })
		},
		"keywords:frequency": func(t string, k ruleKwargs) bool {
			return related(countFold(t, strings.TrimSpace(k.Keyword)), k.Relation, k.Frequency)
		},
		"keywords:forbidden_words": func(t string, k ruleKwargs) bool {
			return !slices.ContainsFunc(k.Forbidden, func(w string) bool {
				return regexp.MustCompile(`(?i)\b` + regexp.QuoteMeta(w) + `\b`).MatchString(t)
			})
		},
		"keywords:letter_frequency": func(t string, k ruleKwargs) bool {
			return related(strings.Count(strings.ToLower(t), strings.ToLower(k.Letter)), k.LetRelation, k.LetFrequency)
		},
		"language:response_language":          func(t string, k ruleKwargs) bool { return speaks(t, k.Language) },
		"length_constraints:number_sentences": func(t string, k ruleKwargs) bool { return related(countSentences(t), k.Relation, k.Sentences) },
		"length_constraints:number_words": func(t string, k ruleKwargs) bool {
			return related(len(wordRuns.FindAllString(t, -1)), k.Relation, k.Words)
		},
		"length_constraints:number_paragraphs":        followsParagraphs,
		"length_constraints:nth_paragraph_first_word": followsFirstWord,
	}
}

// formRules are the instructions about marks, parts, case and punctuation.
func formRules() map[string]rule {
	return map[string]rule{
		"detectable_content:number_placeholders": func(t string, k ruleKwargs) bool {
			return len(placeholder.FindAllString(t, -1)) >= k.Placeholders
		},
		"detectable_content:postscript": followsPostscript,
		"detectable_format:number_bullet_lists": func(t string, k ruleKwargs) bool {
			return len(starBullet.FindAllString(t, -1))+len(dashBullet.FindAllString(t, -1)) == k.Bullets
		},
		"detectable_format:constrained_response": func(t string, _ ruleKwargs) bool {
			return strings.Contains(t, "My answer is yes.") || strings.Contains(t, "My answer is no.") || strings.Contains(t, "My answer is maybe.")
		},
		"detectable_format:number_highlighted_sections": func(t string, k ruleKwargs) bool { return countHighlights(t) >= k.Highlights },
		"detectable_format:multiple_sections": func(t string, k ruleKwargs) bool {
			section := regexp.MustCompile(`\s?` + regexp.QuoteMeta(strings.TrimSpace(k.Splitter)) + `\s?\d+\s?`)
			return len(section.FindAllString(t, -1)) >= k.Sections
		},
		"detectable_format:json_format": followsJSON,
		"detectable_format:title": func(t string, _ ruleKwargs) bool {
			return slices.ContainsFunc(title.FindAllString(t, -1), func(s string) bool { return strings.TrimSpace(strings.Trim(s, "<>")) != "" })
		},
		"combination:two_responses": followsTwoResponses,
		"combination:repeat_prompt": func(t string, k ruleKwargs) bool {
			return strings.HasPrefix(strings.ToLower(strings.TrimSpace(t)), strings.ToLower(strings.TrimSpace(k.Repeat)))
		},
		"startend:end_checker": func(t string, k ruleKwargs) bool {
			return strings.HasSuffix(strings.ToLower(strings.Trim(strings.TrimSpace(t), `"`)), strings.ToLower(strings.TrimSpace(k.End)))
		},
		"startend:quotation": func(t string, _ ruleKwargs) bool {
			t = strings.TrimSpace(t)
			return len(t) > 1 && t[0] == '"' && t[len(t)-1] == '"'
		},
		"change_case:capital_word_frequency": func(t string, k ruleKwargs) bool { return related(countCapitals(t), k.CapRelation, k.Capitals) },
		"change_case:english_capital": func(t string, _ ruleKwargs) bool {
			return cased(t, unicode.IsLower, unicode.IsUpper) && speaks(t, "en")
		},
		"change_case:english_lowercase": func(t string, _ ruleKwargs) bool {
			return cased(t, unicode.IsUpper, unicode.IsLower) && speaks(t, "en")
		},
		"punctuation:no_comma": func(t string, _ ruleKwargs) bool { return !strings.Contains(t, ",") },
	}
}

// readRules reads the key of a problem.
func readRules(key string) (ruleKey, error) {
	var k ruleKey
	if err := json.Unmarshal([]byte(key), &k); err != nil {
		return k, fmt.Errorf("the key is no object of instruction_id_list and kwargs: %w", err)
	}
	if len(k.IDs) == 0 || len(k.Kwargs) != len(k.IDs) {
		return k, fmt.Errorf("the key has %d instructions and %d kwargs, want at least one and as many of both", len(k.IDs), len(k.Kwargs))
	}
	known := rules()
	for i, id := range k.IDs {
		if known[id] == nil {
			return k, fmt.Errorf("unknown instruction %q", id)
		}
		a := k.Kwargs[i]
		for _, name := range needed(id) {
			if !a.given[name] {
				return k, fmt.Errorf("%s: the argument %s is missing or empty", id, name)
			}
		}
		for _, relation := range []string{a.Relation, a.LetRelation, a.CapRelation} {
			if relation != "" && relation != "less than" && relation != "at least" {
				return k, fmt.Errorf("%s: relation %q, want less than or at least", id, relation)
			}
		}
		if id == "language:response_language" && !knownLanguage(a.Language) {
			return k, fmt.Errorf("%s: language %q cannot be told here", id, a.Language)
		}
	}
	return k, nil
}

// judgeRules checks every instruction.
func judgeRules(key, response string) (reward.Verdict, error) {
	k, err := readRules(key)
	if err != nil {
		return reward.Verdict{}, err
	}
	out := reward.Verdict{Method: methodRules}
	if strings.TrimSpace(response) == "" {
		out.Reason = "the response is empty"
		return out, nil
	}
	known := rules()
	var broken []string
	for i, id := range k.IDs {
		if !known[id](response, k.Kwargs[i]) {
			broken = append(broken, id)
		}
	}
	out.Correct, out.Extracted = len(broken) == 0, fmt.Sprintf("%d of %d", len(k.IDs)-len(broken), len(k.IDs))
	if !out.Correct {
		out.Reason = "not followed: " + strings.Join(broken, ", ")
	}
	return out, nil
}

func related(n int, relation string, bound int) bool {
	if relation == "less than" {
		return n < bound
	}
	return n >= bound
}

var (
	wordRuns    = regexp.MustCompile(`[\pL\pN_]+`)
	placeholder = regexp.MustCompile(`\[.*?\]`)
	starBullet  = regexp.MustCompile(`(?m)^\s*\*[^*].*$`)
	dashBullet  = regexp.MustCompile(`(?m)^\s*-.*$`)
	title       = regexp.MustCompile(`<<[^\n]+>>`)
	highlight   = regexp.MustCompile(`\*[^\n*]*\*`)
	highlights  = regexp.MustCompile(`\*\*[^\n*]*\*\*`)
	divider     = regexp.MustCompile(`\s?\*\*\*\s?`)
	fullStop    = regexp.MustCompile(`[.!?]+["')\]]*(?:\s|$)`)
	shortened   = regexp.MustCompile(`\b(?:Mr|Mrs|Ms|Dr|St|Prof|Jr|Sr|Inc|Ltd|Co|vs|e\.g|i\.e|[A-Z])\.`)
)

func countFold(text, part string) int {
	if part == "" {
		return 0
	}
	return strings.Count(strings.ToLower(text), strings.ToLower(part))
}

// countSentences counts the ends of sentences, and a last one without an end.
func countSentences(text string) int {
	text = strings.TrimSpace(shortened.ReplaceAllString(text, "x"))
	ends := fullStop.FindAllStringIndex(text, -1)
	n := len(ends)
	if text != "" && (n == 0 || strings.TrimSpace(text[ends[n-1][1]:]) != "") {
		n++
	}
	return n
}

func countHighlights(text string) int {
	n := 0
	for _, h := range append(highlight.FindAllString(text, -1), highlights.FindAllString(text, -1)...) {
		if strings.TrimSpace(strings.Trim(h, "*")) != "" {
			n++
		}
	}
	return n
}

// countCapitals counts words of capitals alone; one with hyphens is one word.
func countCapitals(text string) int {
	n := 0
	for _, w := range strings.Fields(text) {
		if cased(w, unicode.IsLower, unicode.IsUpper) {
			n++
		}
	}
	return n
}

// cased reports whether a text has a letter of the one kind and none of the other.
func cased(text string, never, some func(rune) bool) bool {
	return strings.IndexFunc(text, never) < 0 && strings.IndexFunc(text, some) >= 0
}

func followsParagraphs(text string, k ruleKwargs) bool {
	parts := divider.Split(text, -1)
	n := 0
	for i, p := range parts {
		switch {
		case strings.TrimSpace(p) != "":
			n++
		case i > 0 && i < len(parts)-1:
			return false
		}
	}
	return n == k.Paragraphs
}

func followsFirstWord(text string, k ruleKwargs) bool {
	parts := strings.Split(text, "\n\n")
	n := 0
	for _, p := range parts {
		if strings.TrimSpace(p) != "" {
			n++
		}
	}
	if n != k.Paragraphs || k.Nth < 1 || k.Nth > n || strings.TrimSpace(parts[k.Nth-1]) == "" {
		return false
	}
	word := strings.TrimLeft(strings.Fields(parts[k.Nth-1])[0], `'"`)
	if end := strings.IndexAny(word, `.,?!'"`); end >= 0 {
		word = word[:end]
	}
	return strings.EqualFold(word, k.FirstWord)
}

func followsPostscript(text string, k ruleKwargs) bool {
	pattern := regexp.QuoteMeta(strings.ToLower(strings.TrimSpace(k.Postscript)))
	switch strings.TrimSpace(k.Postscript) {
	case "P.P.S":
		pattern = `p\.\s?p\.\s?s`
	case "P.S.":
		pattern = `p\.\s?s\.`
	}
	return regexp.MustCompile(pattern).MatchString(strings.ToLower(text))
}

func followsJSON(text string, _ ruleKwargs) bool {
	text = strings.TrimSpace(text)
	if fenced, ok := strings.CutPrefix(text, "```"); ok {
		text = strings.TrimSuffix(fenced, "```")
		if len(text) >= 4 && strings.EqualFold(text[:4], "json") {
			text = text[4:]
		}
	}
	return json.Valid([]byte(strings.TrimSpace(text)))
}

func followsTwoResponses(text string, _ ruleKwargs) bool {
	parts := strings.Split(text, "******")
	var said []string
	for i, p := range parts {
		p = strings.TrimSpace(p)
		switch {
		case p != "":
			said = append(said, p)
		case i > 0 && i < len(parts)-1:
			return false
		}
	}
	return len(said) == 2 && said[0] != said[1]
}
