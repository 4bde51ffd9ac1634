package hfdata_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"hsx/format"
	"hsx/format/hfdata"
	"hsx/internal/hsxtest"
)

func TestParseState(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		data string
		want []string
	}{
		"golden": {string(hsxtest.Golden(t, "state.json")), []string{"data-00000-of-00001.arrow"}},
		"order":  {`{"_data_files":[{"filename":"b.arrow"},{"filename":"a..b"}]}`, []string{"b.arrow", "a..b"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := hfdata.ParseState([]byte(tc.data))
			if err != nil {
				t.Fatalf("ParseState(%q): got error %v", tc.data, err)
			}
			if d := cmp.Diff(tc.want, got); d != "" {
				t.Errorf("ParseState(%q) (-want +got):\n%s", tc.data, d)
			}
		})
	}
}

func TestParseStateRefuses(t *testing.T) {
	t.Parallel()
	named := func(name string) string { return `{"_data_files":[{"filename":"` + name + `"}]}` }
	tests := map[string]struct {
		data string
		kind error
		want string
	}{
		"empty":     {"", format.ErrCorrupt, "truncated"},
		"cut":       {`{"_data_files":[{"filename":"a`, format.ErrCorrupt, "truncated"},
		"not JSON":  {"{]", format.ErrCorrupt, "not JSON"},
		"other":     {`{"a":1}`, format.ErrUnsupported, "names no file"},
		"a list":    {`[]`, format.ErrUnsupported, "holds a array"},
		"numbers":   {`{"_data_files":[1]}`, format.ErrUnsupported, "holds a number"},
		"no name":   {`{"_data_files":[{}]}`, format.ErrUnsupported, `names ""`},
		"parent":    {named(".."), format.ErrUnsupported, `names ".."`},
		"absolute":  {named("/etc/passwd"), format.ErrUnsupported, "plain file name"},
		"below":     {named("a/b"), format.ErrUnsupported, "plain file name"},
		"backslash": {named(`..\\a`), format.ErrUnsupported, "plain file name"},
		"nul":       {named(`a\u0000b`), format.ErrUnsupported, "plain file name"},
		"twice":     {`{"_data_files":[{"filename":"a"},{"filename":"a"}]}`, format.ErrCorrupt, "twice"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := hfdata.ParseState([]byte(tc.data))
			if err == nil {
				t.Fatalf("ParseState(%q): got no error, want %q", tc.data, tc.want)
			}
			hsxtest.CheckDecodeError(t, err, len(tc.data))
			if !errors.Is(err, tc.kind) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("ParseState(%q): got error %v, want a %v with %q", tc.data, err, tc.kind, tc.want)
			}
		})
	}
}
