package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"hsx/bench"
	"hsx/bench/server"
	"hsx/bench/stats"
)

// documented are the fields that docs/json.md lists under each heading of a depth, "##"
// or "###": those in the tables up to the next heading of any depth.
func documented(t *testing.T, depth string) map[string][]string {
	t.Helper()
	data, err := os.ReadFile("../../docs/json.md")
	if err != nil {
		t.Fatal(err)
	}
	fields, section := map[string][]string{}, ""
	name := regexp.MustCompile("`([a-z0-9_]+)`")
	for line := range strings.Lines(string(data)) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, depth+" "):
			section = strings.TrimPrefix(line, depth+" ")
			fields[section] = nil
		case strings.HasPrefix(line, "#"):
			section = ""
		case strings.HasPrefix(line, "| `") && section != "":
			cell, _, _ := strings.Cut(line[2:], "|")
			for _, m := range name.FindAllStringSubmatch(cell, -1) {
				fields[section] = append(fields[section], m[1])
			}
		}
	}
	return fields
}

// printedFields adds the fields of a JSON document, or of those that a list has.
func printedFields(t *testing.T, fields map[string]bool, doc []byte) {
	t.Helper()
	var list []map[string]json.RawMessage
	if !bytes.HasPrefix(doc, []byte("[")) {
		doc = slices.Concat([]byte("["), doc, []byte("]"))
	}
	if err := json.Unmarshal(doc, &list); err != nil {
		t.Fatalf("%v:\n%.1000s", err, doc)
	}
	for _, object := range list {
		for name := range object {
			fields[name] = true
		}
	}
}

// TestJSONDocuments prints every document, with every field that can be absent, and
// compares its fields with those that docs/json.md explains.
func TestJSONDocuments(t *testing.T) {
	t.Parallel()
	const dump, target = "testdata/kit/dumps/specforge_eagle3", "testdata/kit/model/config.json"
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	runs := map[string][][]string{
		"ingest":     {{"ingest", "--out", at("ds"), "--layers", "0,2,3", "--target", target, dump}},
		"plan":       {{"plan", "--parts", "2", dump}},
		"inspect DS": {{"inspect", at("ds")}, {"inspect", at("shifted")}, {"inspect", at("part")}},
		"inspect FILE": {
			{"inspect", "--layers", "0,2,3", "--target", "testdata/kit/model", filepath.Join(dump, "rows_0-2000/data_3.ckpt")},
			{"inspect", filepath.Join(dump, "vocab_mapping/vocab_mapping.pt")},
			{"inspect", "testdata/kit/faulty/containers/zip_crc_zero.ckpt"},
			{"inspect", "testdata/kit/faulty/containers/pt_cut_half.ckpt"},
		},
		"verify":                  {{"verify", at("ds")}},
		"validate":                {{"validate", at("ds")}},
		"validate --list-rules":   {{"validate", "--list-rules"}},
		"ingest --list-producers": {{"ingest", "--list-producers"}},
		"audit":                   {{"audit", at("ds")}},
		"audit --partition":       {{"audit", "--partition", "1/2", at("ds")}},
		"recompress":              {{"recompress", at("ds")}, {"recompress", "--plain", at("ds")}},
		"merge":                   {{"merge", "--out", at("merged"), at("ds")}},
		"export":                  {{"export", "--to", "specforge", "--out", at("export"), at("ds")}},
		"capture":                 {{"capture", "--url", fakeSGLang(t), "--prompts", capturePrompts(t, 3), "--out", at("captured"), "--final", "post"}},
		"gc":                      {{"gc", at("ds")}},
		"version":                 {{"version"}},
		"fingerprint":             nil, // writes a file
	}
	print := func(args []string) []byte {
		code, out, talk := hsx(append(args, "--json")...)
		if code != exitDone && code != exitBadData {
			t.Fatalf("%v: exit %d\n%s", args, code, talk)
		}
		return []byte(out)
	}
	got := map[string][]string{}
	add := func(document string, docs ...[]byte) {
		fields := map[string]bool{}
		for _, doc := range docs {
			printedFields(t, fields, doc)
		}
		for name := range fields {
			got[document] = append(got[document], name)
		}
		slices.Sort(got[document])
	}
	add("ingest", print(runs["ingest"][0]), // the others need its dataset
		print([]string{"ingest", "--follow", "--until-idle", "1ms", "--out", at("followed"), dump}))
	delete(runs, "ingest")
	print([]string{"ingest", "--out", at("shifted"), "--layers", "0,2,3", "--target", target, "testdata/kit/dumps/automodel_topk"})
	print([]string{"ingest", "--out", at("part"), "--partition", "1/2", "--layers", "0,2,3", "--target", target, dump})
	for document, list := range runs {
		var docs [][]byte
		for _, args := range list {
			docs = append(docs, print(args))
		}
		if document == "fingerprint" {
			data, err := os.ReadFile(reference(t, "small", "testdata/kit"))
			if err != nil {
				t.Fatal(err)
			}
			docs = append(docs, data)
		}
		add(document, docs...)
	}
	got["bench"] = jsonFields(reflect.TypeFor[bench.Report]())
	want := documented(t, "##")
	for _, fields := range want {
		slices.Sort(fields)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("fields of docs/json.md and of what is printed (-documented +printed):\n%s", diff)
	}
}

// jsonFields are the names that a struct has in JSON, sorted.
func jsonFields(t reflect.Type) []string {
	var names []string
	for _, f := range reflect.VisibleFields(t) {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" && name != "-" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// TestJSONOfBench compares the objects of the report of bench, most of which can be
// absent, with those that docs/json.md explains.
func TestJSONOfBench(t *testing.T) {
	t.Parallel()
	explained := documented(t, "###")
	for name, of := range map[string]reflect.Type{
		"verdict":                          reflect.TypeFor[bench.Verdict](),
		"gate":                             reflect.TypeFor[bench.GateResult](),
		"level":                            reflect.TypeFor[bench.Level](),
		"levels":                           reflect.TypeFor[bench.LevelReport](),
		"levels: arms":                     reflect.TypeFor[bench.ArmReport](),
		"levels: compared":                 reflect.TypeFor[bench.Comparison](),
		"estimate":                         reflect.TypeFor[stats.Estimate](),
		"summary":                          reflect.TypeFor[stats.Summary](),
		"accept_lengths":                   reflect.TypeFor[bench.AcceptReport](),
		"accept_lengths: other_sources":    reflect.TypeFor[bench.OtherSource](),
		"accept_lengths: by_output_length": reflect.TypeFor[bench.LengthBucket](),
		"accept_lengths: by_category":      reflect.TypeFor[bench.CategoryAccept](),
		"promise":                          reflect.TypeFor[bench.PromiseReport](),
		"promise: positions":               reflect.TypeFor[bench.PositionGap](),
		"diagnosis":                        reflect.TypeFor[bench.Finding](),
		"validity":                         reflect.TypeFor[bench.ValidityReport](),
		"sweep":                            reflect.TypeFor[bench.SweepReport](),
		"sweep: points":                    reflect.TypeFor[bench.SweepPoint](),
		"argument_differences":             reflect.TypeFor[bench.Difference](),
		"arms":                             reflect.TypeFor[bench.ArmInfo](),
		"arms: info":                       reflect.TypeFor[server.Info](),
		"arms: speculation":                reflect.TypeFor[server.Speculation](),
		"plan":                             reflect.TypeFor[bench.Plan](),
	} {
		want := slices.Sorted(slices.Values(explained[name]))
		if diff := cmp.Diff(want, jsonFields(of)); diff != "" {
			t.Errorf("fields of docs/json.md and of %s (-documented +printed):\n%s", name, diff)
		}
	}
}
