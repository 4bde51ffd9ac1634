package simserver

// words are what answers are made of.
const words = `able about above again air all along also always among animal answer any apple arm
around ask autumn away back ball bank base bear beat bed begin behind bell below bench bend best better
bird black blue board boat body bone book both bottle bottom box branch bread break bridge bright bring
brother brown build burn busy butter buy call camp capital care carry cat catch cause centre chain chair
chance change cheese child choose circle city clean clear climb clock close cloth cloud coast coat cold
colour come common cook copper copy corn corner cotton count country cover cow cross crowd cup current
cut daily dance dark day deep desk dinner direct dog door doubt down draw dream dress drink drive drop
dry dust early earth east easy edge egg eight empty end engine enough equal even evening event every
example face fact fall family far farm fast father field fill find fine finger fire first fish five flag
flat floor flower fly follow food foot force forest form forward four free fresh friend front fruit full
garden gate gather gentle give glass gold good grain grass great green ground group grow guide half hand
hard harvest hat head hear heart heavy help here hide high hill history hold hole home hope horse hour
house hundred ice idea island join journey jump keep key kind king kitchen know lake lamp land large last
late laugh leaf learn left letter level lift light line list listen little long look low machine make
many map market measure meet metal middle milk minute mirror moon morning mother mountain mouth move
music name narrow near needle new night nine noise north note number ocean often oil old open orange
order other over page paint paper park part past path pencil people picture place plain plant plate play`
