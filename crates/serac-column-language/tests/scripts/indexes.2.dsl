set(access,index)
q=select(i.t.b,null,11)
v=fetch(i.t.a,q)
print(v)
create(idx,i.t.b,btree,unclustered) -- error
