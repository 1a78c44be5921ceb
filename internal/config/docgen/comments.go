package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"unicode"
)

// comments holds doc comments by "package.Type" and "package.Type.Field".
type comments map[string]string

// readComments parses the Go files of the folders, tests left out.
func readComments(root string, folders ...string) (comments, error) {
	out := comments{}
	for _, folder := range folders {
		dir := filepath.Join(root, folder)
		entries, err := os.ReadDir(dir)
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			if !strings.HasSuffix(e.Name(), ".go") || strings.HasSuffix(e.Name(), "_test.go") {
				continue
			}
			file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(dir, e.Name()), nil, parser.ParseComments|parser.SkipObjectResolution)
			if err != nil {
				return nil, err
			}
			out.add(file)
		}
	}
	return out, nil
}

func (c comments) add(file *ast.File) {
	for _, d := range file.Decls {
		decl, ok := d.(*ast.GenDecl)
		if !ok || decl.Tok != token.TYPE {
			continue
		}
		for _, s := range decl.Specs {
			spec, ok := s.(*ast.TypeSpec)
			if !ok {
				continue
			}
			name := file.Name.Name + "." + spec.Name.Name
			c[name] = oneLine(decl.Doc.Text())
			if t, ok := spec.Type.(*ast.StructType); ok {
				c.addFields(name, t)
			}
		}
	}
}

func (c comments) addFields(name string, t *ast.StructType) {
	for _, f := range t.Fields.List {
		for _, n := range f.Names {
			c[name+"."+n.Name] = oneLine(f.Doc.Text())
		}
	}
}

// oneLine joins the lines of the first paragraph.
func oneLine(text string) string {
	first, _, _ := strings.Cut(text, "\n\n")
	return strings.Join(strings.Fields(first), " ")
}

// ofType is the description of a struct type, without its name.
func (c comments) ofType(t reflect.Type) (string, error) {
	return c.find(t.String(), t.Name())
}

// ofField is the description of a field, without its name.
func (c comments) ofField(t reflect.Type, f reflect.StructField) (string, error) {
	return c.find(t.String()+"."+f.Name, f.Name)
}

// find returns a comment as a description: "Keep is the number of ..." becomes "The
// number of ...".
func (c comments) find(key, name string) (string, error) {
	text, ok := strings.CutPrefix(c[key], name+" ")
	if !ok {
		return "", fmt.Errorf("the comment of %s is %q, want one that begins with its name", key, c[key])
	}
	text = strings.TrimPrefix(strings.TrimPrefix(text, "is "), "are ")
	runes := []rune(text)
	runes[0] = unicode.ToUpper(runes[0])
	return string(runes), nil
}
