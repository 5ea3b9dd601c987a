"""Files that are wrong in one way each, and command lines with a piece of the message that they must give."""

FILES = {
    "good.csv": "x,y\n0,1\n2,3\n4,5\n6,7\n8,9\n",
    "empty.csv": "",
    "header.csv": "x,y\n",
    "ragged.csv": "x,y\n0,1\n2,3,4\n",
    "text.csv": "x,y\n0,1\n2,red\n",
    "open.csv": 'x,y\n0,1\n"2,3\n4,5\n6,7\n',
    "ids.csv": "id,x\np-1,0\np-2,1\np-3,2\n",
    "k.A.csv": "x,y\n0,1\n2,k.A.\n4,n b\n6,k.A.\n",
    "nan.csv": "x,y\n0,1\nnan,3\n",
    "inf.csv": "x,y\n0,1\n2,inf\n",
    "blank.csv": "x,y,label\n0,1,a\n2,3,\n",
    "gap.csv": "x,device\n0,0\n1,1\n2,5\n",
    "negative.csv": "x,device\n0,0\n1,-1\n2,1\n",
    "half.csv": "x,device\n0,0\n1,0.5\n2,1\n",
    "both.csv": "x,device,client\n0,0,0\n1,1,1\n2,1,1\n",
    "five.csv": "x,device\n0,0\n1,1\n2,2\n3,3\n4,4\n",
    "labels.csv": "label\n1\n2\n",
    "points.xlsx": "x",
    "cut.xlsx": "\0",
    "class.arff": "@relation r\n@attribute x real\n@attribute class {1,2}\n@data\n0,1\n2,2\n",
    "weights.arff": "@relation r\n@attribute x real\n@attribute w real\n@data\n0,1,{2}\n2,2\n",
    "bag.arff": "@relation r\n@attribute bag relational\n@attribute x real\n@end bag\n@data\n'1'\n",
    "long.arff": "@relation r\n@attribute x real\n@data\n1,2\n",
    "digits.csv": "x,y\n9007199254740993,1\n9007199254740992,2\n",
    "pickle.npz": "\0 not an archive",
    "broken.npy": "\0 no header",
    "directed.graphml": '<graphml xmlns="http://graphml.graphdrawing.org/xmlns"><graph edgedefault="directed">'
    '<node id="0"/><node id="1"/><edge source="0" target="1"/></graph></graphml>',
    "lonely.graphml": '<graphml xmlns="http://graphml.graphdrawing.org/xmlns"><graph edgedefault="undirected">'
    '<node id="0"/><node id="1"/></graph></graphml>',
    "broken.graphml": "<graphml>",
    "directed.json": '{"directed": true, "multigraph": false, "nodes": [{"id": 0}, {"id": 1}],'
    ' "edges": [{"source": 0, "target": 1}]}',
    "graph.dot": "graph {a -- b}",
    "loop.edgelist": "0 1\n1 1\n",
    "empty.edgelist": "",
    "comment.edgelist": "# nothing\n",
    "twice.edgelist": "0 1\n0 1\n",
    "lgl.txt": "# A\nB 1\nC 2\n# B\nC 1\n",
    "wild.edgelist": "0 1 1e20\n1 2 1\n",
    "nobody.gml": "graph [ ]\n",
    "weight.edgelist": "0 1 -2\n",
    "zero.edgelist": "0 1 0\n",
    "word.edgelist": "0 1 heavy\n",
    "two.edgelist": "0 1\n2 3\n",
    "pair.edgelist": "0 1\n",
    "wrong.toml": "graph = ring\n",
    "unknown.toml": "grahp = 'ring'\n",
    "type.toml": "devices = 'many'\n",
    "float.toml": "devices = 3.5\n",
    "bool.toml": "rounds = true\n",
    "truth.toml": "baselines = 1\n",
    "text.toml": "graph = 5\n",
    "nan.toml": "alpha = nan\n",
    "huge.toml": f"alpha = 1{'0' * 400}\n",
    "table.toml": "[graph]\nname = 'ring'\n",
    "list.toml": "devices = [1, 2]\n",
    "date.toml": "seed = 2020-01-01\n",
    "null.toml": 'out = "a\\u0000b"\n',
    "range.toml": "rounds = -1\n",
    "flag.toml": "force = true\n",
    "word.jsonl": "arrive\n",
    "round.jsonl": '\n{"kind": "leave", "round": 99, "device": 0, "number": 0}\n',
    "head.jsonl": '{"kind": "stream", "features": 3}\n',
    "point.jsonl": '{"kind": "arrive", "round": 1, "device": 0, "point": [1, 2, 3]}\n',
    "large.jsonl": '{"kind": "arrive", "round": 1, "device": 0, "point": [1, 1e300]}\n',
    "weight.jsonl": '{"kind": "arrive", "round": 1, "device": 0, "point": [1, 2], "weight": 0}\n',
    "gone.jsonl": '{"kind": "leave", "round": 1, "device": 0, "number": 9999}\n',
    "plain.txt": "a file where a folder should be",
}

USAGE = """
--graph rnig                              | unknown graph 'rnig'. Did you mean 'ring'?
--graph pair.edgelist                     | To read this file, use file:pair.edgelist.
--graph=                                  | unknown graph ''
--graph ring:                             | ends with ':'
--graph ring:seed=1                       | unknown key 'seed' of graph 'ring'
--graph small-world:degre=4               | Did you mean 'degree'?
--graph small-world:degree                | give degree once, as degree=value
--graph small-world:degree=4,degree=6     | give degree once
--graph small-world:degree=few            | 'few'; expected a whole number
--graph erdos-renyi:p=half                | 'half'; expected a number
--graph erdos-renyi:p=nan                 | expected a finite number
--graph karate:weighted=maybe             | expected true or false
--graph file:                             | needs a path
--graph object:0123456789abcdef           | an object of a Python program; expected text
--data object:0123456789abcdef            | an object of a Python program; expected text
--algorithm object:0123456789abcdef       | an object of a Python program; expected text
--graph gallery                           | needs a recipe
--devices 0                               | at least 1
--test-share 1                            | test_share is 1; expected a number from 0 to below 1
--test-share -0.1                         | test_share is -0.1
--test-share half                         | not a valid float
--test-share 0.2 --stream drawn           | test_share 0.2 cannot be combined with --stream
--devices -3                              | devices is -3
--devices four                            | not a valid integer
--devices 99999999999999999999            | below 2^63
--data grid17                             | Did you mean 'grid16'?
--data grid16:point=3                     | Did you mean 'points'?
--data grid16:points=0                    | points is 0
--data grid16:sd=-1                       | sd is -1
--data grid16:sd=inf                      | expected a finite number
--data blobs:features=0                   | features is 0
--data digits:components=65               | expected at most 64
--data iris:seed=1                        | unknown key 'seed'
--data file:                              | needs a path
--data grid16:seed=-1                     | seed is -1
--label-column y                          | cannot be combined with options
--device-column y                         | cannot be combined with options
--partition irichlet                      | Did you mean 'dirichlet'?
--partition none                          | unknown partition 'none'
--partition dirichlet:alpha=0             | expected a finite number above 0
--partition dirichlet:by=color           | Known: class, device
--partition beta:miss=far                 | Known: closest, redraw
--partition by-label:labels=0             | labels is 0
--partition mufc:local=0                  | local is 0
--partition iid:minimum=-1                | minimum is -1
--clusters 0                              | clusters is 0
-k -1                                     | clusters is -1
-k x                                      | expected a whole number
--algorithm gtvmim                        | Did you mean 'gtvmin'?
--algorithm gtvmin:alfa=1                 | Did you mean 'alpha'?
--algorithm gtvmin:update=printed         | Known: as-printed, exact
--algorithm gtvmin:alpha=1 --alpha 2      | alpha is set both as an option and in
--algorithm gtvmin:local_steps=0               | local_steps is 0
--algorithm fkm:seeding=own               | Known: lloyd, plusplus, random
--algorithm fkm:server_n_init=0           | server_n_init is 0
--algorithm fkm:min_count=two             | expected a whole number
--algorithm fkm:version=1                 | unknown key 'version'
--algorithm ffcm1:version=2               | unknown key 'version'
--algorithm ffcm2:fuzzifier=1.7           | fuzzifier is 1.7
--algorithm fkm:defaults=published        | defaults is 'published'
--algorithm fkmeanscb:epsilon=-1          | epsilon is -1
--algorithm kfed:local_k=0                | local_k is 0
--algorithm feca:pair=both                | pair
--algorithm fkm --coupling 3              | method 'fkm' has no key coupling
--algorithm fkm --init global           | method 'fkm' has no key init
--algorithm fkm --schedule jacobi         | method 'fkm' has no key schedule
bench --suite cores                       | Did you mean 'core'?
bench --task grid                         | unknown task 'grid'
bench --algorithm gtvmni                  | Did you mean 'gtvmin'
bench --algorithm deepfeca                | cannot be ranked
bench --test-share 0.2                    | test_share without data
bench --data blobs --suite real           | data of your own cannot be combined with a suite
bench --suite real                        | lacks the files cells, census
bench --file mnist                        | expected NAME=PATH
bench --time-limit 0                      | time_limit is 0
bench --algorithm local --client-share .5 | no entry of the benchmark can run with client_share=0.5
bench --client-share 2                    | client_share is 2
bench --deadline 0.1                      | a deadline without link_model
bench --algorithm fkm --stale-policy drop | requires faults or a deadline
bench --link-model edge                   | link_model without data
bench --out full                          | does not hold a bench
bench list cores                          | Did you mean 'core'?
bench merge full --out x                  | expected at least two
--data mixture:ratio=0.5                  | ratio is 0.5
--data mixture:outliers=1                 | outliers is 1
--partition dominant:share=1              | share is 1
swep                                      | Did you mean 'sweep'? Known: algorithms, animate,
topology descrbe ring                     | Did you mean 'describe'?
privacy bugdet full                       | Did you mean 'budget'?
privacy budget                            | Missing argument 'RUN...'
algorithms fecca                          | Did you mean 'feca'?
compare --algorithm gtvmim                | Did you mean 'gtvmin'?
compare --algorithm gtvmin,gtvmin         | a repeated entry
compare --algorithm fkm,                  | an empty or a repeated
compare --seeds 5-1                       | the smaller number of a range first
compare --reference fkn                   | expected one of the compared methods
compare --margin 2                        | margin is 2.0; expected a number from 0
compare --seed 3                          | No such option
compare --out full                        | does not hold a comparison
--init locl                             | Did you mean 'local'
--quantize rise                         | Did you mean 'rice'
--quantize rice:bits=60                 | expected a whole number from 1 to 52
--quantize rice --noise 0.1             | noise is not a multiple of the step size
--deadline 1 --algorithm fkm            | deadline 1 requires a link model
--deadline 0 --algorithm fkm --link-model wan | deadline is 0.0; expected a finite number above 0
--deadline soon --algorithm fkm --link-model wan | is not a valid float
--deadline 1 --link-model wan           | has the schedule colored, in which devices do not wait
--deadline 1 --link-model wan --algorithm fedlloyd | cannot be combined with fedlloyd
--deadline 1 --link-model wan --algorithm fkm --quantize rice | with late or lost messages
--client-share 0.1                      | cannot be combined with gtvmin: the method has no server
--client-share 0.1 --algorithm kfed     | asks each client once
--client-share 0.1 --algorithm fedlloyd | no round in which a server could leave out clients
--client-share 0 --algorithm fkm        | client_share is 0.0; expected a finite number above 0 and at most 1
--client-share 2 --algorithm fkm        | client_share is 2.0; expected a finite number above 0 and at most 1
--client-share some --algorithm fkm     | expected a share of the clients, with options
--client-share 0.1:by=sise --algorithm fkm | Did you mean 'size'
--client-share 0.1 --algorithm fkm --quantize rice | the receiver at a new link
--compress topk:share=0                 | compress:share is 0.0; expected a finite number above 0
--compress topk:share=0.7               | expected at most 0.5 with topk, or 1
--compress randomk:share=2              | compress:share is 2; expected at most 1
--compress top                          | Did you mean 'topk'
--compress topk --algorithm fkm         | sends tables of two shapes
--compress topk --algorithm kfed        | sends each table once
--compress topk --algorithm consensus   | sends sums, of which none may be missing
--compress topk --algorithm admm        | adds up differences between neighbors
--compress topk --algorithm gossip      | sends to one neighbor at a time
--compress topk --algorithm coreset     | does not send rows of centroids
--compress topk --quantize rice         | integers are differences between whole tables
--compress topk --byzantine 1           | Byzantine devices send whole tables
--compress topk --min-cluster-size 2    | a row that is left out changes the numbers of the others
--compress topk --relaxation 1.5        | over-relaxation on old numbers diverges
--compress topk --graph one-peer-exponential | the receiver at a new link
--compress topk --link-model wan --schedule async | reads the newest of several tables
--quantize rice --algorithm mufc        | with mufc: the method does not send rows
--quantize rice --algorithm treelloyd   | with treelloyd: the method sends integers already
--algorithm treelloyd --init local      | gives devices different centroids
--algorithm treelloyd:search=breath     | Did you mean 'breathing'
--algorithm private                     | method 'private' requires epsilon and radius
--algorithm private:epsilon=0,radius=30 | epsilon is 0.0
--algorithm private:epsilon=1,radius=1e155 | private:radius is 1e+155; expected a finite number above 0
--algorithm private:epsilon=1,radius=1e-162 | private:radius is 1e-162; expected from 1e-100 to 1e+100
--algorithm private:epsilon=1,radius=1,center=1e15 | private:center is 1000000000000000.0 with a radius of 1
--algorithm private:epsilon=1,radius=30,delta=0.1 | expected less than 1 /
--algorithm private:epsilon=1,radius=30,noise_seed=-1 | noise_seed is -1
--algorithm private:epsilon=1,radius=30,points=5 | private:points=5 cannot be combined with relation=add
--algorithm private:epsilon=1,radius=30,relation=device,points=0 | private:points is 0
--algorithm treelloyd:pull=1 | pull is 1 without local steps
--algorithm treelloyd:local_steps=-1 | local_steps is -1
--algorithm ditto:pull=-1 | pull is -1
--algorithm ditto:local_steps=0 | local_steps is 0
--algorithm feddp | requires epsilon and radius
--algorithm feddp:epsilon=1,radius=0 | feddp:radius
--algorithm feddp:epsilon=1,radius=30,delta=0.1 | expected less than 1 /
--algorithm feddp:epsilon=1,radius=30,server_points=-1 | feddp:server_points is -1
--algorithm feddp:epsilon=1e-14,radius=30,delta=1e-30 | integers do not hold it
--algorithm feddp:epsilon=1e9,radius=30 | otherwise rounding to integers removes it
--algorithm feddp:epsilon=1,radius=30 --scale standard | cannot be combined with feddp
--algorithm private:epsilon=1,radius=30,relation=device,delta=0.3 | devices; expected less than 1 /
--algorithm private:epsilon=1,radius=30,relation=device,points=1000000000000000000 | integers do not hold it
--algorithm private:epsilon=1,radius=30,relation=exchange | Known: add, device, replace
--algorithm private:epsilon=1,radius=30 --checkpoint-every 2 | cannot be combined with private without noise_seed
--algorithm private:epsilon=1,radius=30 --init leader | method 'private' has no key init
--algorithm private:epsilon=1,radius=30 --scale minmax | --scale ranges:age=0..100
--scale ranges:0..x                       | expected ranges:NAME=LOW..HIGH
--algorithm private:epsilon=1,radius=30 --graph star | is not safe on this graph: device 0 disconnects it
--algorithm private:epsilon=1,radius=30,curious=2 | is not safe on this graph: devices
--init won                             | unknown init 'won'
--init local:hops=1                      | It takes no keys
--init flooded-summaries:hop=1                 | Did you mean 'hops'?
--groups --init local                     | --groups and --init local cannot be combined
--alpha -1                                | alpha is -1
--alpha nan                               | expected a finite number
--alpha inf                               | expected a finite number
--coupling -0.5                           | coupling is -0.5
--coupling nan                            | expected a finite number
--coupling 1e999                          | expected a finite number
--alpha 1 --coupling 1                    | alpha=1.0 and coupling=1.0 cannot be combined
--coupling bays                           | expected a number, or auto, or strong, or bayes, or links
--algorithm gtvmin:shares=true            | shares=true requires coupling=bayes, links, strong or a number
--coupling auto --algorithm gtvmin:shares=true | auto chooses whether shares are used
--coupling auto --algorithm gtvmin:swaps=true | it may choose shares, which require one exact pass per turn
--coupling auto --groups                  | --groups, which changes the links from which
--coupling auto --robust saturate         | --robust saturate, which changes the links from which
--coupling auto --init local              | initial centroids that all devices agreed on
--coupling rehearsal                      | It is gone. Use coupling=auto
--no-accept                               | The acceptance test is gone
--algorithm gtvmin:accept=true            | The acceptance test is gone
--coupling auto --noise 0.1               | neighbors are compared by messages that arrive unchanged
--coupling auto --faults loss=0.1         | neighbors are compared by messages that arrive unchanged
--coupling auto --min-cluster-size 3      | sends means of small clusters, too
--coupling auto --stream drawn            | neighbors are compared before the first round
--coupling auto --graph edge-markov       | compares neighbors before the first round
--coupling auto --quantize rice           | may choose shares, with which it minimizes between the grid points
--coupling links --groups                 | --groups, which changes the links from which
--coupling bayes --init local             | initial centroids that all devices agreed on
--coupling links --robust trim            | coupling=links and robust=trim cannot be combined
--coupling links --faults loss=0.1        | neighbors are compared by messages that arrive unchanged
--coupling links --noise 0.1              | neighbors are compared by messages that arrive unchanged
--coupling links --byzantine 1            | neighbors are compared by messages that arrive unchanged
--coupling bayes --min-cluster-size 3     | sends means of small clusters, too
--coupling bayes --stream drawn           | neighbors are compared before the first round
--coupling bayes --graph edge-markov      | compares neighbors before the first round
--schedule random                         | Known: async, colored, jacobi
--relaxation 0                                 | above 0 and below 2
--relaxation 2                                 | above 0 and below 2
--relaxation -1                                | above 0 and below 2
--relaxation nan                               | expected a finite number
--relaxation 1.5 --schedule jacobi             | jacobi
--algorithm gtvmin:matching=best               | Known: nearest, optimal
--algorithm gtvmin:matching=optimal --groups   | matching=optimal and groups cannot be combined
--algorithm gtvmin:safeguard=true              | safeguard cannot be combined with --schedule colored
--algorithm dgc:rho=0                          | rho is 0
--algorithm gossip-sum:sends=0                 | sends is 0
--algorithm epidemic:cycles=0                  | cycles is 0
--local-steps 0                                | local_steps is 0
--local-steps 99999999999999999999             | below 2^63
--rounds -1                               | rounds is -1
--rounds 1.5                              | not a valid integer
--tol -1                                  | tol is -1
--tol nan                                 | expected a finite number
--seed -1                                 | seed is -1
--seed 9223372036854775808                | below 2^63
--record-every 0                                 | record_every is 0
--format xml                              | is not one of 'table', 'json'
--nope                                    | No such option
--graph simple-base --groups       | change from round to round
--graph peer-sampler:degree=2 --relaxation 1.2 | change from round to round
--graph simple-base --algorithm pushsum:counters=true | with counters=true sends running totals
--graph simple-base --algorithm tracking:counters=true | with counters=true sends running totals
--out                                     | requires an argument
fly                                       | No such command 'fly'
--rounds 3 run                            | options must follow the command: p2pkm run
run fly                                   | unexpected extra argument
--config missing.toml                     | missing.toml does not exist
--config .                                | does not exist
--config=                                 | does not exist
--config wrong.toml                       | cannot be read
--config binary.toml                      | cannot be read
--config unknown.toml                     | Did you mean 'graph'?
--config type.toml                        | 'many'; expected a whole number
--config float.toml                       | 3.5; expected a whole number
--config bool.toml                        | expected a whole number
--config truth.toml                       | expected true or false
--config text.toml                        | expected text
--config nan.toml                         | expected a finite number
--config huge.toml                        | expected a number
--config table.toml                       | a table or a list
--config list.toml                        | a table or a list
--config date.toml                        | expected a whole number
--config null.toml                        | cannot be used
--stream drift                            | unknown stream 'drift'. Known: drawn, file
--stream drawn:kind=leap                  | kind is 'leap'. Known: birth, jump, none, slow, turn
--stream drawn:share=2                    | stream share is 2.0
--stream drawn:at=0                       | stream at is 0
--stream missing.jsonl                    | the data trace missing.jsonl cannot be read
--stream word.jsonl                       | word.jsonl, line 1: not JSON
--stream round.jsonl                      | round.jsonl, line 2: round is 99
--stream head.jsonl --algorithm kfed      | kfed cannot follow a stream
--config range.toml                       | rounds is -1
--config flag.toml                        | unknown key 'force'
--graph --out none                        | --graph is followed by --out; expected a value
--devices -k 3                            | --devices is followed by -k; expected a value
--out --quiet                             | --out is followed by --quiet; expected a value
--drop x --drop=y                         | --drop is set twice, to x and to y; expected one list. Use --drop x,y
plan --na -9 --seed -1 --na none          | --na is set twice, to -9 and to none; expected one list. Use --na -9,none
-k 3 --clusters=4                         | --clusters is set twice, to 3 and to 4; expected one value. Use --clusters 4
-q --quiet                                | --quiet is given 2 times; expected at most once
--plot --no-plot                          | --plot is combined with --no-plot
--graph file:loop.edgelist,loops=keep     | Known: drop, refuse
help private                              | private is a value of --algorithm, not an option. Use p2pkm algorithms
help loss                                 | NAME:key=value, not an option. Use p2pkm help faults
help epsilon                              | Use p2pkm algorithms private, p2pkm algorithms
help latency                              | Use p2pkm help link-model
help tree-summaries                       | tree-summaries is a value of --init, not an option. Use p2pkm help init
--transforms rounding                     | no installed package adds a transform. Remove --transforms
--data missing.foo                        | --data is 'missing.foo', which does not exist
--out plain.txt                           | is a file
--out plain.txt/run                       | not a writable folder
--out full                                | is not empty
--out .                                   | is not empty
--out . --force                           | contains the current folder
--out .. --force                          | contains the current folder
""".strip().splitlines()

CONTENT = """
--algorithm fkm --graph ring              | uses a server
--algorithm ditto --graph ring | ditto cannot be combined with graph 'ring': it uses a server
--algorithm feddp:epsilon=1,radius=30 --graph ring | feddp cannot be combined with graph 'ring': it uses a server
--algorithm local --graph ring            | local cannot be combined with graph 'ring': it sends no messages. Remove
--graph file:missing.foo                  | missing.foo is not a file; check the path
--stream head.jsonl                       | the data trace is for 3 features, but the run has 2
--stream point.jsonl                      | point is 3 coordinates; expected a list of 2 numbers
--stream large.jsonl                      | point has the coordinate 1e+300; expected finite numbers
--stream weight.jsonl                     | weight is 0; expected a number above 0
--stream gone.jsonl                       | number is 9999 for kind leave, but device 0 does not have
--algorithm fkm -k 81                     | 81 clusters of 80 points
--algorithm fkm --true-centers missing.csv     | missing.csv
--algorithm fkm --true-centers five.csv        | 1 features, but the data have 2
--true-centers text.csv                        | is 'red'
--graph grid --devices 7                  | 7 devices is a prime number
--graph torus --devices 7                 | prime
--graph grid:rows=3                       | does not divide 4
--graph grid:rows=0                       | rows is 0
--graph tree:branching=0                  | branching is 0
--graph caveman:size=3                    | does not divide
--graph small-world:degree=4              | the largest legal value is 2
--graph small-world:degree=3              | even number
--graph small-world:degree=2,rewire=2     | a number from 0 to 1
--graph random-regular:degree=4           | the largest legal value is 3
--graph barabasi-albert:m=4               | the largest legal value is 3
--graph erdos-renyi:p=0                   | none of 100 draws
--graph erdos-renyi:seed=-1               | seed is -1
--graph karate                            | 34 devices, but 4
--graph file:missing.graphml              | is not a file
--graph gallery:nothing                   | gallery recipe is 'nothing'
--graph hypercube --devices 12            | Use 8 or 16
--graph file:full                         | full is not a file
--graph file:graph.dot                    | suffix '.dot'
--graph file:directed.graphml             | is directed
--graph file:directed.json                | is directed
--graph file:lonely.graphml               | no links
--graph file:broken.graphml               | cannot be read
--graph file:loop.edgelist                | link to itself
--graph file:empty.edgelist               | is empty
--graph file:comment.edgelist             | no nodes
--graph file:twice.edgelist               | is in line 1 already
--graph file:lgl.txt                      | lgl.txt looks like LGL
--graph file:wild.edgelist                | expected a ratio of at most 1e+12
--graph file:nobody.gml                   | no nodes and no links
--graph file:weight.edgelist              | above 0
--graph file:zero.edgelist                | above 0
--graph file:word.edgelist                | the weight is 'heavy'
--graph file:two.edgelist                 | disconnected
--graph file:pair.edgelist                | 2 devices, but 4
--graph file:five.edgelist --data five.csv --devices 5 | is not a file
--data missing.csv                        | data file missing.csv does not exist
--data full                               | unknown data
--data file:full                          | is a folder
--data file:points.xlsx                   | contains text; expected the format of its suffix, .xlsx
--data file:cut.xlsx                      | cannot be read as a spreadsheet
--data empty.csv                          | is empty
--data header.csv                         | no points
--data ragged.csv                         | line 3: 3 fields; expected 2
--data text.csv                           | line 3, column 'y' is 'red'
--data open.csv                           | open.csv, line 3: a quotation mark is not closed before line 5
--data ids.csv                            | line 2, column 'id' is 'p-1'; expected a number with a decimal point
--data ids.csv                            | Use --keep id to copy it to labels.csv, --drop id
--data k.A.csv                            | Use --na 'k.A.,n b' if they mean missing. Correct the fields (3 are not
--data nan.csv                            | line 3, column 'x' is empty, in 1 of 2 rows
--data inf.csv                            | line 3, column 'y' is 'inf'
--data blank.csv                          | is empty
--data binary.csv                         | is not text in utf-16
--data labels.csv                         | no column is left
--data good.csv --label-column z          | --label-column is 'z'; expected one of the columns 'x', 'y'
--data good.csv --device-column 7         | --device-column is '7'; expected one of the columns 'x', 'y'
--data good.csv --label-column x --device-column x | both label and device
--data both.csv                           | Choose one with --device-column device
--data gap.csv                            | names 3 devices; expected 4
--data negative.csv                       | numbers below 0, such as -1, at 1 of 3 rows
--data half.csv                           | names 3 devices; expected 4
--data five.csv --partition column        | names 5 devices; expected 4
--data good.csv --partition column        | requires a column
--data good.csv --partition dirichlet     | requires the label
--data good.csv --partition by-label      | requires the label
--data good.csv --partition iid:minimum=2 | cannot give 4 devices a minimum of 2
--data good.csv -k 6                      | 6 clusters of 5 points
--data good.csv -k 6 --partition mufc     | 6 clusters of 5 points
--data good.csv                           | 8 clusters of 5 points
-k 81                                     | 81 clusters of 80 points
--data nan.npy                            | nan at row 1, column 0
--data flat.npy                           | has shape (4,)
--data none.npy                           | at least one point
--data text.npy                           | expected real numbers
--data pickled.npy                        | without pickles
--data broken.npy                         | cannot be read
--data pickle.npz                         | is not a .npz archive
--data several.npz                        | 'X', 'points', 'images' or a single
--data several.npz:c                      | several.npz has no array 'c', but 'a' [3, 2], 'b' [3, 2]
--data class.arff                         | column 'class' is '1', a declared category; expected a number
--data weights.arff --weight-column w     | cannot be combined with --weight-column w
--data bag.arff                           | has the type 'relational'
--data long.arff                          | 2 fields; expected 1, one per attribute
--data digits.csv                         | which are equal as floating-point numbers
privacy budget nowhere                    | is not a run folder: it does not exist
privacy budget good.csv                   | is not a run folder: it is a file
privacy budget full                       | is not a run folder: summary.json is missing
""".strip().splitlines()
