package evaluate

import (
	"strings"
	"unicode"
)

// scripts are languages that their letters tell from those with Latin letters. Languages
// that share a script are not told apart.
func scripts() map[string][]*unicode.RangeTable {
	cyrillic, devanagari, arabic := []*unicode.RangeTable{unicode.Cyrillic}, []*unicode.RangeTable{unicode.Devanagari}, []*unicode.RangeTable{unicode.Arabic}
	return map[string][]*unicode.RangeTable{
		"ru": cyrillic, "bg": cyrillic, "uk": cyrillic, "mk": cyrillic, "hi": devanagari, "mr": devanagari, "ne": devanagari,
		"ar": arabic, "fa": arabic, "ur": arabic, "ko": {unicode.Hangul}, "bn": {unicode.Bengali}, "pa": {unicode.Gurmukhi},
		"gu": {unicode.Gujarati}, "ta": {unicode.Tamil}, "te": {unicode.Telugu}, "kn": {unicode.Kannada}, "ml": {unicode.Malayalam},
		"th": {unicode.Thai}, "he": {unicode.Hebrew}, "el": {unicode.Greek}, "zh": {unicode.Han}, "ja": {unicode.Hiragana, unicode.Katakana, unicode.Han},
	}
}

// common are frequent words of languages with Latin letters.
func common() map[string]string {
	return map[string]string{
		"en": "the and of to is in that it for with are this you was on as be have not",
		"de": "der die und das ist nicht ein eine mit von den ich zu auf sie es im auch",
		"fr": "le la les et des est une pour que dans qui pas sur avec vous ce il",
		"es": "el los las y que es una por con para del se no un como su al",
		"it": "il che di e un una per non sono con del della gli alla si come",
		"pt": "o os as e que uma para com não do da em um se por mais dos",
		"nl": "de het een en van is dat niet met voor op zijn te aan ook",
		"pl": "i w nie na się że jest do to z jak ale o po",
		"sv": "och att det som en är på av för med inte den till ett",
		"fi": "ja on ei että se hän oli mutta kun niin ovat myös joka",
		"vi": "và của là có không được một cho trong người với các những",
		"tr": "ve bir bu da için ile çok olarak daha de gibi ne",
		"sw": "na ya wa ni kwa katika za la kuwa cha hii kama",
		"ro": "și de la un o în că nu cu pe este sunt din care",
		"id": "yang dan di ini itu dengan untuk dari tidak adalah pada",
	}
}

func knownLanguage(language string) bool {
	return scripts()[language] != nil || common()[language] != ""
}

// speaks reports whether most letters of a text are of a language's script, and for Latin
// letters whether no other language has more of its frequent words in it. A text without
// letters or frequent words speaks any language.
func speaks(text, language string) bool {
	letters, own, latin := 0, 0, 0
	tables := scripts()[language]
	for _, r := range text {
		if !unicode.IsLetter(r) && !unicode.IsMark(r) {
			continue
		}
		letters++
		if unicode.Is(unicode.Latin, r) {
			latin++
		}
		if tables != nil && unicode.In(r, tables...) {
			own++
		}
	}
	if tables != nil {
		return letters == 0 || 2*own > letters
	}
	if letters > 0 && 2*latin <= letters {
		return false
	}
	found := countCommon(text)
	for _, n := range found {
		if n > found[language] {
			return false
		}
	}
	return true
}

// countCommon counts the frequent words of each language in a text.
func countCommon(text string) map[string]int {
	words := strings.FieldsFunc(strings.ToLower(text), func(r rune) bool { return !unicode.IsLetter(r) })
	found := map[string]int{}
	for name, list := range common() {
		of := map[string]bool{}
		for _, w := range strings.Fields(list) {
			of[w] = true
		}
		for _, w := range words {
			if of[w] {
				found[name]++
			}
		}
	}
	return found
}
