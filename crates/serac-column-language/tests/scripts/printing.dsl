create(db,"p")
create(tbl,"t",p,2)
create(col,"a",p.t)
create(col,"b",p.t)
print(p.t.a)
relational_insert(p.t,1,10)
relational_insert(p.t,2,-20)
relational_insert(p.t,2,30)
print(p.t.a,p.t.b)
q=select(p.t.a,2,null)
v=fetch(p.t.b,q)
print(q,v)
print(q,p.t.a) -- error
s=sum(p.t.b)
m=avg(p.t.b)
print(s,m,s)
print(v,s) -- error
n=select(p.t.a,9,9)
print(n)
none=fetch(p.t.a,n)
print(none)
print(nothing) -- error
print(p.t) -- error
print() -- error
