#!/bin/bash
# Records a repository with real dvc: record.sh DVC OUT
set -e
DVC=$1; OUT=$2; PYBIN=$(dirname $DVC)
export PATH=$PYBIN:$PATH HOME=/tmp/dvcenv/home GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b DVC_NO_ANALYTICS=1
mkdir -p $HOME; rm -rf $OUT; mkdir -p $OUT/repo; cd $OUT/repo
git init -q -b main; (dvc init -q || true)
dvc remote add -d storage ../../remote 2>&1 | tail -3
sed -i 's#url = .*#url = ../../remote#' .dvc/config
mkdir -p data/images
printf 'x,y\r\n1,2\r\n3,6\r\n5,10\r\n' > data/train.csv
printf 'x,y\n7,14\n' > data/test.csv
python3 - <<'P'
import pathlib
for n in range(3): pathlib.Path(f"data/images/{n}.bin").write_bytes(bytes([n, 0, 255, 13, 10]) * (n + 3))
pathlib.Path("data/images/deep").mkdir(); pathlib.Path("data/images/deep/labels.txt").write_bytes(b"0 cat\r\n1 dog\r\n")
P
dvc add -q data/train.csv data/test.csv data/images
cat > prepare.py <<'P'
import pathlib
rows = pathlib.Path("data/train.csv").read_text().split()[1:]
out = pathlib.Path("features"); out.mkdir(exist_ok=True)
(out / "double.csv").write_text("".join(f"{2 * int(r.split(',')[0])}\n" for r in rows))
(out / "count.csv").write_text(f"{len(rows)}\n")
pathlib.Path("mean.txt").write_text("3\n")
P
cat > dvc.yaml <<'P'
stages:
  prepare:
    cmd: python prepare.py
    deps: [data/train.csv, prepare.py]
    outs: [features, mean.txt]
P
dvc repro -q; dvc push -q
cp .dvc/config $OUT/config.txt
find $OUT/remote -type f | sort; cat data/*.dvc dvc.lock .dvc/config
