package validate_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"hsx/format"
	"hsx/validate"
)

// configCase is one input of CheckConfig and all that it should report: "severity rule",
// and in messages a part of each message or remedy, in the order of the rules' names.
type configCase struct {
	config string // "" for none
	in     validate.ConfigInput
	want   []string
	parts  []string
}

func configCases() map[string]configCase {
	target := format.Target{Name: "llama", Layers: 48, HiddenSize: 64, VocabSize: 512}
	kimi := format.Target{Name: "kimi_k25", Layers: 61, HiddenSize: 64, VocabSize: 512}
	data := configLayout(format.NormPost, 1, 20, 40)
	in := validate.ConfigInput{Target: target, Data: data, Wanted: format.Layers{1, 20, 40}}
	nested := func(ids string) string { return `{"eagle_config":{"eagle_aux_hidden_state_layer_ids":` + ids + `}}` }
	with := func(change func(in *validate.ConfigInput)) validate.ConfigInput {
		in := in
		change(&in)
		return in
	}
	server := func(name string) validate.ConfigInput {
		return with(func(in *validate.ConfigInput) { in.Server = name })
	}
	unknown := format.Layout{HiddenSize: 64, States: []format.State{{Role: format.RoleBlock}, {Role: format.RoleBlock, Block: 1}, {Role: format.RoleBlock, Block: 2}}}
	return map[string]configCase{
		"all agree":                      {config: nested("[1,20,40]"), in: in},
		"all agree, boundary":            {config: `{"aux_hidden_state_layer_ids":[2,21,41]}`, in: with(func(in *validate.ConfigInput) { in.Data = configLayout(format.NormPre, 1, 20, 40) })},
		"no config":                      {in: in},
		"nothing":                        {in: validate.ConfigInput{}},
		"sizes agree":                    {config: `{"hidden_size":32,"target_hidden_size":64,"vocab_size":512,"draft_vocab_size":512,"num_target_layers":48,"aux_hidden_states_layer_ids":[1,20,40],"num_aux_hidden_states":3}`, in: in},
		"captured layers for depth":      {config: `{"num_target_layers":3,"aux_hidden_states_layer_ids":[1,20,40]}`, in: in},
		"final stands for the last":      {config: nested("[1,20,40,47]"), in: with(func(in *validate.ConfigInput) { in.Data, in.Server = configLayout(format.NormPre, 1, 20, 40), "" }), want: []string{"info final-norm-differs", "warning last-layer-unservable"}},
		"fc agrees":                      {config: nested("[1,20,40]"), in: with(func(in *validate.ConfigInput) { in.FCWidth = 192 })},
		"fc is to blame":                 {config: nested("[1,20,40]"), in: with(func(in *validate.ConfigInput) { in.FCWidth = 128 })},
		"wanted differs":                 {in: with(func(in *validate.ConfigInput) { in.Wanted = format.Layers{1, 21, 40} }), want: []string{"error layers-differ"}, parts: []string{"block 2: --layers wants P_21, the data holds P_20"}},
		"wanted beyond":                  {in: with(func(in *validate.ConfigInput) { in.Wanted = format.Layers{1, 20, 48} }), want: []string{"error ids-out-of-range"}, parts: []string{"P_48"}},
		"config differs":                 {config: nested("[1,20,41]"), in: in, want: []string{"error layers-differ"}, parts: []string{"block 3: the config wants P_41, the data holds P_40"}},
		"config differs from wanted":     {config: nested("[1,20,41]"), in: with(func(in *validate.ConfigInput) { in.Data = format.Layout{} }), want: []string{"error layers-differ"}, parts: []string{"--layers wants P_40"}},
		"post-norm final is not a layer": {config: nested("[1,20,40,47]"), in: in, want: []string{"error ids-count", "warning last-layer-unservable"}},
		"layers unknown":                 {config: nested("[1,20,40]"), in: validate.ConfigInput{Target: target, Data: unknown}},
		"falling":                        {config: nested("[20,1,40]"), in: in, want: []string{"error ids-not-increasing"}, parts: []string{"1 follows 20"}},
		"repeated":                       {config: nested("[1,1,40]"), in: in, want: []string{"error ids-duplicate"}, parts: []string{"id 1 more than once"}},
		"repeated and falling":           {config: nested("[40,1,40]"), in: in, want: []string{"error ids-duplicate", "error ids-not-increasing"}},
		"negative":                       {config: nested("[-1,20,40]"), in: in, want: []string{"error ids-negative"}, parts: []string{"block 1: the config wants P_-1, the data holds P_1"}},
		"negative and held":              {config: nested("[-1,20,40]"), in: with(func(in *validate.ConfigInput) { in.Data, in.Wanted = configLayout(format.NormPost, -1, 20, 40), nil }), want: []string{"warning ids-negative"}},
		"negative and meant": {config: nested("[-1,20,40]"), in: with(func(in *validate.ConfigInput) {
			in.Data, in.Wanted, in.Embedding = configLayout(format.NormPost, -1, 20, 40), nil, true
		})},
		"before the embedding":         {config: `{"aux_hidden_state_layer_ids":[-1,21,41]}`, in: with(func(in *validate.ConfigInput) { in.Embedding = true }), want: []string{"error ids-negative", "info final-norm-differs"}, parts: []string{"before the embedding", ""}},
		"too high, post":               {config: nested("[1,20,48]"), in: in, want: []string{"error ids-out-of-range"}, parts: []string{"want at most 47"}},
		"too high, boundary":           {config: `{"aux_hidden_state_layer_ids":[2,21,49]}`, in: with(func(in *validate.ConfigInput) { in.Data = configLayout(format.NormPre, 1, 20, 40) }), want: []string{"error ids-out-of-range"}, parts: []string{"want at most 48"}},
		"empty":                        {config: nested("[]"), in: in, want: []string{"error ids-empty"}},
		"too few":                      {config: nested("[20,40]"), in: in, want: []string{"error ids-count"}, parts: []string{"2 ids, the data holds 3 (P_1 P_20 P_40)"}},
		"too few for fc":               {config: nested("[20,40]"), in: validate.ConfigInput{Target: target, FCWidth: 192}, want: []string{"error ids-count"}, parts: []string{"fc.weight takes 3 blocks of 64"}},
		"num_aux_hidden_states":        {config: `{"num_aux_hidden_states":4,"aux_hidden_states_layer_ids":[1,20,40]}`, in: in, want: []string{"error ids-count"}, parts: []string{"num_aux_hidden_states is 4"}},
		"absent, default held":         {config: `{}`, in: with(func(in *validate.ConfigInput) { in.Data, in.Wanted = configLayout(format.NormPost, 1, 23, 44), nil })},
		"absent, another held":         {config: `{}`, in: in, want: []string{"error layers-differ"}, parts: []string{"the default for 48 layers is P_1 P_23 P_44"}},
		"absent, depth unknown":        {config: `{}`, in: validate.ConfigInput{Data: data}, want: []string{"warning ids-absent"}},
		"absent, dflash":               {config: `{"architectures":["DFlashDraftModel"]}`, in: in, want: []string{"error ids-absent"}},
		"absent, shallow":              {config: `{}`, in: with(func(in *validate.ConfigInput) { in.Target.Layers, in.Wanted = 6, nil }), want: []string{"error default-degenerate"}, parts: []string{"P_1 P_2 P_2"}},
		"absent, just deep enough":     {config: `{}`, in: validate.ConfigInput{Target: format.Target{Layers: 7}, Data: configLayout(format.NormPost, 1, 2, 3)}},
		"places disagree":              {config: `{"eagle_aux_hidden_state_layer_ids":[1,20,40],"eagle_config":{"eagle_aux_hidden_state_layer_ids":[1,20,40]}}`, in: in, want: []string{"error places-disagree"}, parts: []string{"is P_0 P_19 P_39 (boundary)"}},
		"places agree":                 {config: `{"eagle_aux_hidden_state_layer_ids":[2,21,41],"eagle_config":{"eagle_aux_hidden_state_layer_ids":[1,20,40]}}`, in: in},
		"places agree by semantics":    {config: `{"eagle_aux_layer_semantics":"sglang","eagle_aux_hidden_state_layer_ids":[1,20,40],"eagle_config":{"eagle_aux_hidden_state_layer_ids":[1,20,40]}}`, in: in},
		"the other default, post":      {config: nested("[2,24,45]"), in: validate.ConfigInput{Target: target}, want: []string{"warning other-convention-default"}, parts: []string{"feed P_1 P_23 P_44"}},
		"the other default, boundary":  {config: `{"aux_hidden_state_layer_ids":[1,23,44]}`, in: validate.ConfigInput{Target: target}, want: []string{"warning other-convention-default"}},
		"the other default, wanted":    {in: validate.ConfigInput{Target: target, Wanted: format.Layers{2, 24, 45}}, want: []string{"info other-convention-default"}},
		"own default":                  {config: nested("[1,23,44]"), in: validate.ConfigInput{Target: target}},
		"versions differ":              {config: nested("[2,20,40]"), in: validate.ConfigInput{Target: kimi}, want: []string{"warning server-versions-differ"}, parts: []string{"feeds P_1 P_19 P_39"}},
		"versions agree":               {config: nested("[1,20,40]"), in: validate.ConfigInput{Target: kimi}},
		"version chosen":               {config: nested("[2,20,40]"), in: validate.ConfigInput{Target: kimi, Server: "sglang<25454"}},
		"server agrees":                {config: nested("[1,20,40]"), in: server("sglang")},
		"server reads elsewhere":       {config: nested("[1,20,40]"), in: server("vllm"), want: []string{"error server-ignores-ids"}, parts: []string{"vllm does not read eagle_config.eagle_aux_hidden_state_layer_ids, and its default feeds P_1 P_23 P_44"}},
		"server's default is the same": {config: nested("[1,23,44]"), in: validate.ConfigInput{Target: target, Server: "vllm"}, want: []string{"info server-ignores-ids"}},
		"server reads otherwise":       {config: nested("[1,20,40]"), in: server("vllm legacy"), want: []string{"error server-differs"}, parts: []string{"block 1: vllm legacy feeds P_0, the data holds P_1"}},
		"server takes an argument":     {config: nested("[1,20,40]"), in: server("trtllm"), want: []string{"warning server-differs"}, parts: []string{"without eagle3_layers_to_capture it feeds P_1 P_23 P_44"}},
		"last layer":                   {config: nested("[1,20,47]"), in: validate.ConfigInput{Target: target}, want: []string{"warning last-layer-unservable"}},
		"last layer, served by vllm":   {config: `{"aux_hidden_state_layer_ids":[2,21,48]}`, in: validate.ConfigInput{Target: target, Server: "vllm"}},
		"last layer of gpt-oss":        {config: nested("[24,30,47]"), in: validate.ConfigInput{Target: target, Family: "gpt-oss"}},
		"no aux states":                {config: `{"use_aux_hidden_state":false}`, in: in, want: []string{"warning aux-states-off"}},
		"no aux states, none held":     {config: `{"use_aux_hidden_state":false}`, in: validate.ConfigInput{Target: target, Data: configLayout(format.NormPost)}},
		"target width":                 {config: `{"target_hidden_size":48,"aux_hidden_states_layer_ids":[1,20,40]}`, in: in, want: []string{"error target-width-differs"}, parts: []string{"48, want 64"}},
		"target width left out":        {config: `{"hidden_size":32,"aux_hidden_states_layer_ids":[1,20,40]}`, in: in, want: []string{"warning target-width-differs"}},
		"target vocabulary":            {config: `{"vocab_size":500,"aux_hidden_states_layer_ids":[1,20,40]}`, in: in, want: []string{"warning target-vocab-differs"}},
		"target depth":                 {config: `{"num_target_layers":47,"aux_hidden_states_layer_ids":[1,20,40]}`, in: in, want: []string{"warning target-depth-differs"}},
		"draft vocabulary of 0":        {config: `{"draft_vocab_size":0,"aux_hidden_states_layer_ids":[1,20,40]}`, in: in, want: []string{"error draft-vocab-range"}},
		"draft vocabulary too large":   {config: `{"draft_vocab_size":513,"aux_hidden_states_layer_ids":[1,20,40]}`, in: in, want: []string{"error draft-vocab-range"}, parts: []string{"513, want 1 to 512"}},
		"final before the norm":        {config: nested("[1,20,40]"), in: with(func(in *validate.ConfigInput) { in.Data = configLayout(format.NormPre, 1, 20, 40) }), want: []string{"info final-norm-differs"}, parts: []string{"specforge, torchspec, modelopt"}},
		"final of unknown norm":        {config: nested("[1,20,40]"), in: with(func(in *validate.ConfigInput) { in.Data = configLayout(format.NormUnknown, 1, 20, 40) })},
	}
}

func TestCheckConfig(t *testing.T) {
	t.Parallel()
	fired := map[string]bool{}
	for name, tc := range configCases() {
		for _, w := range tc.want {
			_, rule, _ := strings.Cut(w, " ")
			fired[rule] = true
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if tc.config != "" {
				c, err := validate.ParseConfig([]byte(tc.config))
				if err != nil {
					t.Fatalf("ParseConfig(%s): got error %v", tc.config, err)
				}
				tc.in.Config = c
			}
			out := validate.NewCollector(10, nil)
			validate.CheckConfig(tc.in, out)
			checkGroups(t, out, tc.want, tc.parts)
		})
	}
	checkAllFire(t, "config", fired)
}

// checkGroups compares findings with "severity rule" and parts of their text, both in
// the order of the words.
func checkGroups(t *testing.T, out *validate.Collector, want, parts []string) {
	t.Helper()
	got, texts := []string{}, map[string]string{}
	for _, g := range out.Groups() {
		key := fmt.Sprintf("%s %s", g.Severity, g.Rule)
		got = append(got, key)
		for _, f := range g.Findings {
			texts[key] += f.Message + "\n"
		}
	}
	slices.Sort(got)
	if diff := cmp.Diff(append([]string{}, want...), got); diff != "" {
		t.Errorf("findings (-want +got):\n%s%v", diff, texts)
	}
	for i, p := range parts {
		if text := texts[want[i]]; !strings.Contains(text, p) {
			t.Errorf("%s: got %q, want it to contain %q", want[i], text, p)
		}
	}
}

// checkAllFire wants each rule that needs this to have a case in which it fires.
func checkAllFire(t *testing.T, needs string, fired map[string]bool) {
	t.Helper()
	for _, r := range validate.Rules() {
		if r.Needs != needs {
			continue
		}
		if !fired[r.Name] {
			t.Errorf("rule %s fires in no case of the table", r.Name)
		}
		if r.Doc == "" || r.Cost == "" || strings.HasSuffix(r.Doc, ".") {
			t.Errorf("rule %s: got %+v, want a clause on what it proves, and its cost", r.Name, r)
		}
	}
}
