create(db,"e")
create(tbl,"t",e,2)
create(col,"a",e.t)
relational_insert(e.t,1) -- error
create(col,"b",e.t)
create(col,"c",e.t) -- error
load("bad.csv") -- error
load("missing.csv") -- error
relational_insert(e.t,4,5)
p=select(e.t.a,null,null)
v=fetch(e.t.a,p)
v=fetch(e.t.nope,p) -- error
w=add(v,p) -- error
print(v)
print(w) -- error
s=select(e.t.a,1) -- error
create(db,"e") -- error
