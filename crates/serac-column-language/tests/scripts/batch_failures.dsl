create(db,"b")
create(tbl,"t",b,2)
create(col,"a",b.t)
create(col,"b",b.t)
relational_insert(b.t,1,2)
relational_insert(b.t,3,4)
old=select(b.t.a,3,4)
kept=sum(b.t.b)
batch_queries()
batch_queries() -- error
relational_insert(b.t,9,9) -- error
print(kept) -- error
shutdown -- error
x=fetch(b.t.b,old)
kept=sum(nothing) -- error
y=add(kept,kept) -- error
z=sum(x)
z=sum(x)
old=select(b.t.a,1,2)
w=fetch(b.t.b,old)
batch_execute()
print(kept,z,w)
print(y) -- error
batch_queries()
batch_execute()
